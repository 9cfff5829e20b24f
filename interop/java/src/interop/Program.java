package interop;

import io.netty.buffer.Unpooled;
import io.rsocket.Payload;
import io.rsocket.metadata.CompositeMetadata;
import io.rsocket.metadata.RoutingMetadata;
import io.rsocket.metadata.WellKnownMimeType;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongFunction;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** What every responder here does, whatever it is built with: interop/program.py says it, and who changes one both. */
final class Program {
    private Program() {}

    /** A command and its arguments; what is no command is echoed. */
    static String[] words(byte[] data) {
        String text = new String(data, 0, Math.min(data.length, 200), StandardCharsets.ISO_8859_1);
        return text.startsWith("!") ? text.substring(1).split(" ", -1) : new String[] {"echo"};
    }

    static String joined(String[] words, int from) {
        return String.join(" ", Arrays.copyOfRange(words, Math.min(from, words.length), words.length));
    }

    /** The answer to a request. */
    static Mono<Payload> answer(Payload request) {
        byte[] data = Values.data(request);
        byte[] metadata = Values.metadata(request);
        String[] words = words(data);
        switch (words[0]) {
            case "digest":
                String about = metadata == null ? "-" : metadata.length + " " + Values.digest(metadata);
                return Mono.just(Values.text(data.length + " " + Values.digest(data) + " " + about));
            case "size":
                return Mono.just(sized(number(words[1]), 1, number(words[2]), 2));
            case "fail":
                return Mono.error(Values.error(0x201, joined(words, 1)));
            case "code":
                return Mono.error(Values.error(Long.parseLong(words[1], 16), joined(words, 2)));
            case "never":
                return Mono.<Payload>never()
                    .doOnSubscribe(subscription -> Lines.fact("never", "tag", words[1]))
                    .doOnCancel(() -> Lines.fact("canceled", "tag", words[1]));
            case "slow":
                return Mono.delay(Duration.ofMillis(number(words[1]))).map(tick -> Values.text("slow"));
            case "route":
                return Mono.just(Values.text(route(metadata)));
            default:
                return Mono.just(Values.payload(data, metadata));
        }
    }

    /** What a stream consists of. */
    static Flux<Payload> stream(Payload request) {
        byte[] data = Values.data(request);
        String[] words = words(data);
        switch (words[0]) {
            case "count":
                int width = number(words[2]);
                return items(number(words[1]), i -> Values.text(padded(i, width)), null, null);
            case "meta":
                return items(number(words[1]), i -> Values.payload(bytes(i), bytes("m" + i)), null, null);
            case "size":
                int size = number(words[1]);
                int meta = number(words[2]);
                return items(number(words[3]), i -> sized(size, (int) i, meta, (int) i + 1), null, null);
            case "never":
                return Flux.<Payload>never()
                    .doOnSubscribe(subscription -> Lines.fact("never", "tag", words[1]))
                    .doOnCancel(() -> Lines.fact("canceled", "tag", words[1]));
            case "endless":
                return items(Long.MAX_VALUE, i -> Values.payload(bytes(i), null), null, words[1]);
            case "fail":
                RuntimeException failed = Values.error(0x201, joined(words, 2));
                return items(number(words[1]), i -> Values.payload(bytes(i), null), failed, null);
            case "code":
                RuntimeException coded = Values.error(Long.parseLong(words[2], 16), joined(words, 3));
                return items(number(words[1]), i -> Values.payload(bytes(i), null), coded, null);
            case "empty":
                return Flux.empty();
            default:
                return Flux.just(Values.payload(data, Values.metadata(request)));
        }
    }

    /** So many items as they are asked for, on a thread of their own; then the error, or completion. */
    static Flux<Payload> items(long count, LongFunction<Payload> item, RuntimeException error, String tag) {
        Flux<Payload> made = Flux.<Payload, Long>generate(() -> 0L, (i, sink) -> {
            if (i < count) {
                sink.next(item.apply(i));
            }
            if (i + 1 >= count && error != null) { // with the last item: nobody need ask for an end
                sink.error(error);
            } else if (i + 1 >= count) {
                sink.complete();
            }
            return i + 1;
        }).subscribeOn(Schedulers.parallel());
        return tag == null ? made : made.doOnCancel(() -> Lines.fact("canceled", "tag", tag));
    }

    private static Payload sized(int size, int seed, int meta, int metaSeed) {
        return Values.payload(Values.fill(size, seed), meta == 0 ? null : Values.fill(meta, metaSeed));
    }

    /** The route, and what else there is, as its own reader sees it. */
    private static String route(byte[] metadata) {
        List<String> found = new ArrayList<>();
        for (CompositeMetadata.Entry entry : new CompositeMetadata(Unpooled.wrappedBuffer(metadata), false)) {
            if (WellKnownMimeType.MESSAGE_RSOCKET_ROUTING.getString().equals(entry.getMimeType())) {
                found.add(new RoutingMetadata(entry.getContent()).iterator().next());
            } else {
                found.add(entry.getMimeType() + "=" + entry.getContent().readableBytes());
            }
        }
        return String.join(" ", found);
    }

    static byte[] bytes(Object value) {
        return String.valueOf(value).getBytes(StandardCharsets.ISO_8859_1);
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    static String padded(long number, int width) {
        StringBuilder made = new StringBuilder(String.valueOf(number));
        while (made.length() < width) {
            made.append('.');
        }
        return made.toString();
    }
}
