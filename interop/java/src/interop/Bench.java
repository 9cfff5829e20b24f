package interop;

import com.sun.management.OperatingSystemMXBean;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.SocketAcceptor;
import io.rsocket.core.RSocketConnector;
import io.rsocket.core.RSocketServer;
import io.rsocket.frame.decoder.PayloadDecoder;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.server.CloseableChannel;
import io.rsocket.transport.netty.server.TcpServerTransport;
import io.rsocket.util.ByteBufPayload;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.reactivestreams.Subscription;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** One end of a measurement: Bench server SETTINGS, Bench client SETTINGS PORT. It speaks what benchmarks/child.py speaks. */
public final class Bench {
    private static final String HOST = "127.0.0.1";
    private static final int REQUEST_BYTES = 64;
    private static final int[] ROWS = {60, 270, 180, 90, 300, 210, 120, 330, 240, 150}; // of workloads.py
    private static final int[] NEAR = {48, 76, 60, 68, 52, 80, 64, 72, 56, 64};

    public static void main(String[] words) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (words[0].equals("server")) {
            serve(lines);
        } else {
            work(lines, Integer.parseInt(words[2]));
        }
        System.exit(0); // its threads wait for more
    }

    // -- the server --------------------------------------------------------------------------------------------

    private static void serve(BufferedReader lines) throws IOException {
        CloseableChannel bound = RSocketServer.create(SocketAcceptor.with(new Echo()))
            .payloadDecoder(PayloadDecoder.ZERO_COPY)
            .bindNow(TcpServerTransport.create(HOST, 0));
        say(", \"port\": " + bound.address().getPort(), 0);
        while (lines.readLine() != null) {
            say("", 0);
        }
    }

    /** Echoes requests, and streams as many items as it is asked for. */
    private static final class Echo implements RSocket {
        @Override
        public Mono<Payload> requestResponse(Payload payload) {
            return Mono.just(payload);
        }

        @Override
        public Flux<Payload> requestStream(Payload payload) {
            String[] asked = payload.getDataUtf8().split(" ");
            payload.release();
            byte[][] items = items(Integer.parseInt(asked[1]));
            return Flux.range(0, Integer.parseInt(asked[0])).map(i -> ByteBufPayload.create(items[i % items.length]));
        }
    }

    private static byte[][] items(int size) {
        int[] sizes = size == 0 ? ROWS : size == 1 ? NEAR : new int[] {size};
        return Arrays.stream(sizes).mapToObj(byte[]::new).toArray(byte[][]::new);
    }

    // -- the client --------------------------------------------------------------------------------------------

    private static void work(BufferedReader lines, int port) throws Exception {
        RSocket socket = RSocketConnector.create()
            .payloadDecoder(PayloadDecoder.ZERO_COPY)
            .keepAlive(Duration.ofSeconds(20), Duration.ofSeconds(90))
            .connect(TcpClientTransport.create(HOST, port))
            .block();
        say("", 0);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            double busy = cpu();
            long start = System.nanoTime();
            long[] count = line.contains("\"request\"")
                ? request(socket, number(line, "n"), number(line, "concurrency"))
                : stream(socket, number(line, "items"), number(line, "size"), number(line, "credit"));
            double seconds = (System.nanoTime() - start) / 1e9;
            String told = ", \"seconds\": %f, \"items\": %d, \"bytes\": %d";
            say(String.format(Locale.ROOT, told, seconds, count[0], count[1]), busy);
        }
    }

    private static long[] request(RSocket socket, int n, int concurrency) {
        byte[] data = new byte[REQUEST_BYTES];
        AtomicLong bytes = new AtomicLong();
        Long answered = Flux.range(0, n)
            .flatMap(i -> socket.requestResponse(ByteBufPayload.create(data)).doOnNext(answer -> {
                bytes.addAndGet(answer.data().readableBytes());
                answer.release();
            }), concurrency)
            .count()
            .block();
        return new long[] {answered, bytes.get()};
    }

    private static long[] stream(RSocket socket, int items, int size, int credit) throws Exception {
        Counter counter = new Counter(credit);
        socket.requestStream(ByteBufPayload.create(items + " " + size)).subscribe(counter);
        counter.done.await();
        if (counter.error != null) {
            throw new IllegalStateException(counter.error);
        }
        return new long[] {counter.items, counter.bytes};
    }

    /** Counts, and grants again when half of the window is consumed. */
    private static final class Counter extends BaseSubscriber<Payload> {
        final CountDownLatch done = new CountDownLatch(1);
        final int credit;
        final int mark;
        volatile Throwable error;
        long items;
        long bytes;
        private int taken;

        Counter(int credit) {
            this.credit = credit;
            this.mark = Math.max(1, credit / 2);
        }

        @Override
        protected void hookOnSubscribe(Subscription subscription) {
            request(credit);
        }

        @Override
        protected void hookOnNext(Payload item) {
            items++;
            bytes += item.data().readableBytes();
            item.release();
            if (++taken == mark) {
                taken = 0;
                request(mark);
            }
        }

        @Override
        protected void hookOnComplete() {
            done.countDown();
        }

        @Override
        protected void hookOnError(Throwable failure) {
            error = failure;
            done.countDown();
        }
    }

    // -- both --------------------------------------------------------------------------------------------------

    private static int number(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": *(\\d+)").matcher(line);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + name + " in " + line);
        }
        return Integer.parseInt(found.group(1));
    }

    private static void say(String more, double busy) throws IOException {
        String used = String.format(Locale.ROOT, "\"cpu\": %f, \"peak\": %d", cpu() - busy, peak());
        System.out.println("{" + used + more + "}");
    }

    private static double cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    private static long peak() throws IOException {
        Path status = Paths.get("/proc/self/status");
        List<String> lines = Files.exists(status) ? Files.readAllLines(status, StandardCharsets.ISO_8859_1) : List.of();
        for (String line : lines) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        return 0;
    }
}
