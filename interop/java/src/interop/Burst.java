package interop;

import io.rsocket.Payload;
import io.rsocket.RSocket;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** Many echoes asked for in one go, and what became of them. */
final class Burst {
    private final long count;
    private final int size;
    private final Peer.Reply reply;
    private final Map<String, Object> failed = new LinkedHashMap<>();
    private long answered;
    private long wrong;
    private long left;

    Burst(long count, int size, Peer.Reply reply) {
        this.size = size;
        this.count = left = count;
        this.reply = reply;
    }

    void run(RSocket socket) {
        for (long i = 0; i < count; i++) {
            byte[] data = Program.bytes(Program.padded(i, size));
            socket.requestResponse(Values.payload(data, null)).subscribe(item -> came(data, item), this::failed);
        }
    }

    private synchronized void came(byte[] data, Payload item) {
        if (Arrays.equals(data, Values.data(item))) {
            answered++;
        } else {
            wrong++;
        }
        over();
    }

    private synchronized void failed(Throwable error) {
        failed.merge(Values.message(error), 1L, (one, more) -> (Long) one + (Long) more);
        over();
    }

    private void over() {
        left--;
        if (left == 0) {
            reply.say("burst", Lines.map("answered", answered, "wrong", wrong, "failed", failed));
        }
    }
}
