package interop;

import io.netty.buffer.ByteBufUtil;
import io.rsocket.Payload;
import io.rsocket.RSocketErrorException;
import io.rsocket.exceptions.ApplicationErrorException;
import io.rsocket.exceptions.CanceledException;
import io.rsocket.exceptions.CustomRSocketException;
import io.rsocket.exceptions.InvalidException;
import io.rsocket.exceptions.RejectedException;
import io.rsocket.util.DefaultPayload;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Map;

/** How bytes, payloads and errors are told: interop/program.py says it. */
final class Values {
    private static final int SHOWN = 256; // larger values are told by length and digest

    private Values() {}

    /** Bytes that show where they belong: blocks of 256, each with its number first. */
    static byte[] fill(int size, int seed) {
        byte[] made = new byte[size];
        for (int i = 0; i < size; i++) {
            int place = i & 0xff;
            made[i] = (byte) (place < 4 ? (i >>> 8) >>> (24 - 8 * place) : place * 31 + seed);
        }
        return made;
    }

    static MessageDigest sha() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException never) {
            throw new IllegalStateException(never);
        }
    }

    static String digest(byte[] data) {
        return ended(sha(), data);
    }

    /** The digest of all that was put in, and of this. */
    static String ended(MessageDigest hash, byte[] last) {
        return ByteBufUtil.hexDump(hash.digest(last)).substring(0, 16);
    }

    static String shown(byte[] data) {
        if (data == null) {
            return null;
        }
        return data.length <= SHOWN ? "h:" + ByteBufUtil.hexDump(data) : "s:" + data.length + ":" + digest(data);
    }

    static byte[] read(String value) {
        if (value == null) {
            return null;
        }
        String[] parts = value.split(":", -1);
        if (parts[0].equals("h")) {
            return ByteBufUtil.decodeHexDump(parts[1]);
        }
        return fill(Integer.parseInt(parts[1]), Integer.parseInt(parts[2]));
    }

    // -- payloads ----------------------------------------------------------------------------------------------

    static byte[] data(Payload payload) {
        return ByteBufUtil.getBytes(payload.sliceData());
    }

    static byte[] metadata(Payload payload) {
        return payload.hasMetadata() ? ByteBufUtil.getBytes(payload.sliceMetadata()) : null;
    }

    static Payload payload(byte[] data, byte[] metadata) {
        return DefaultPayload.create(data == null ? new byte[0] : data, metadata);
    }

    static Payload text(String data) {
        return payload(data.getBytes(java.nio.charset.StandardCharsets.ISO_8859_1), null);
    }

    /** The same again: what came in goes out as a payload of its own. */
    static Payload copy(Payload payload) {
        return payload(data(payload), metadata(payload));
    }

    static Map<String, Object> told(Payload payload) {
        return Lines.map("data", shown(data(payload)), "metadata", shown(metadata(payload)));
    }

    // -- errors ------------------------------------------------------------------------------------------------

    /** An error as the caller sees it. */
    static Map<String, Object> failure(Throwable error) {
        return Lines.map("code", code(error), "message", message(error));
    }

    /** The code, unsigned; null when it was no error of RSocket. */
    static Long code(Throwable error) {
        if (error instanceof RSocketErrorException) {
            return ((RSocketErrorException) error).errorCode() & 0xffffffffL;
        }
        return null;
    }

    static String message(Throwable error) {
        return error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
    }

    /** The exception that stands for a code. */
    static RuntimeException error(long code, String text) {
        switch ((int) code) {
            case 0x201:
                return new ApplicationErrorException(text);
            case 0x202:
                return new RejectedException(text);
            case 0x203:
                return new CanceledException(text);
            case 0x204:
                return new InvalidException(text);
            default:
                return new CustomRSocketException((int) code, text);
        }
    }
}
