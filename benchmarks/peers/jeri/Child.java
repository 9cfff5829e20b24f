// One end of a measurement with the Java original of Jmux: java Child server SETTINGS | client SETTINGS PORT.
// It speaks what benchmarks/child.py speaks. What is measured is Apache River's, through its public classes
// (net.jini.jeri.connection), over NIO as its TCP endpoints do it.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import net.jini.core.constraint.InvocationConstraints;
import net.jini.jeri.InboundRequest;
import net.jini.jeri.OutboundRequest;
import net.jini.jeri.connection.Connection;
import net.jini.jeri.connection.ConnectionEndpoint;
import net.jini.jeri.connection.ConnectionManager;
import net.jini.jeri.connection.InboundRequestHandle;
import net.jini.jeri.connection.OutboundRequestHandle;
import net.jini.jeri.connection.ServerConnection;
import net.jini.jeri.connection.ServerConnectionManager;

public final class Child {
    private static final int SMALL = 64;
    private static final OutboundRequestHandle OUT = new OutboundRequestHandle() {};
    private static final InboundRequestHandle IN = new InboundRequestHandle() {};

    public static void main(String[] words) throws Exception {
        if (words[0].equals("server")) {
            serve();
        } else {
            work(Integer.parseInt(words[2]));
        }
        System.exit(0); // its threads wait for more
    }

    // -- the server: whatever a session says, it says too ------------------------------------------------------

    private static void serve() throws Exception {
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
        int port = ((InetSocketAddress) listener.getLocalAddress()).getPort();
        ServerConnectionManager manager = new ServerConnectionManager();
        Thread accepting = new Thread(() -> accept(listener, manager));
        accepting.setDaemon(true);
        accepting.start();
        System.out.println("{" + used(0) + ", \"port\": " + port + "}");
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        while (asked.readLine() != null) {
            System.out.println("{" + used(0) + "}");
        }
    }

    private static void accept(ServerSocketChannel listener, ServerConnectionManager manager) {
        try {
            while (true) {
                manager.handleConnection(new Accepted(quick(listener.accept())), Child::echo);
            }
        } catch (IOException closed) {
            // the process ends
        }
    }

    private static void echo(InboundRequest request) {
        try (InputStream in = request.getRequestInputStream(); OutputStream out = request.getResponseOutputStream()) {
            out.write(in.readAllBytes());
        } catch (IOException broken) {
            request.abort();
        }
    }

    /** What both ends of a connection have: the streams of its channel. */
    private abstract static class OverChannel {
        final SocketChannel channel;

        OverChannel(SocketChannel channel) {
            this.channel = channel;
        }

        public InputStream getInputStream() throws IOException {
            return channel.socket().getInputStream();
        }

        public OutputStream getOutputStream() throws IOException {
            return channel.socket().getOutputStream();
        }

        public SocketChannel getChannel() {
            return channel;
        }
    }

    private static final class Accepted extends OverChannel implements ServerConnection {
        Accepted(SocketChannel channel) {
            super(channel);
        }

        public InboundRequestHandle processRequestData(InputStream in, OutputStream out) {
            return IN;
        }

        public void checkPermissions(InboundRequestHandle handle) {
        }

        public InvocationConstraints checkConstraints(InboundRequestHandle handle, InvocationConstraints wanted) {
            return InvocationConstraints.EMPTY;
        }

        public void populateContext(InboundRequestHandle handle, Collection context) {
        }

        public void close() throws IOException {
            channel.close();
        }
    }

    // -- the client --------------------------------------------------------------------------------------------

    private static void work(int port) throws Exception {
        ConnectionManager manager = new ConnectionManager(new ToServer(port));
        exchange(manager, new byte[SMALL]); // it connects with the first
        System.out.println("{" + used(0) + "}");
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        ExecutorService threads = Executors.newCachedThreadPool();
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            int n = number(line, "n");
            boolean sessions = line.contains("\"session\"");
            int size = sessions ? number(line, "size") : SMALL;
            int concurrency = sessions ? 1 : number(line, "concurrency");
            double busy = cpu();
            long start = System.nanoTime();
            List<Future<Long>> shares = new ArrayList<>();
            for (int index = 0; index < concurrency; index++) {
                int share = n / concurrency + (index < n % concurrency ? 1 : 0);
                shares.add(threads.submit((Callable<Long>) () -> {
                    byte[] data = new byte[size];
                    long bytes = 0;
                    for (int done = 0; done < share; done++) {
                        bytes += exchange(manager, data);
                    }
                    return bytes;
                }));
            }
            long bytes = 0;
            for (Future<Long> share : shares) {
                bytes += share.get();
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.println("{" + used(busy) + ", \"seconds\": " + seconds + ", \"items\": " + n + ", \"bytes\": "
                + bytes + "}");
        }
    }

    private static int exchange(ConnectionManager manager, byte[] data) throws IOException {
        OutboundRequest request = manager.newRequest(OUT).next();
        try (OutputStream out = request.getRequestOutputStream()) {
            out.write(data);
        }
        try (InputStream in = request.getResponseInputStream()) {
            return in.readAllBytes().length;
        }
    }

    private static final class ToServer implements ConnectionEndpoint {
        private final int port;

        ToServer(int port) {
            this.port = port;
        }

        public Connection connect(OutboundRequestHandle handle) throws IOException {
            return new Connected(quick(SocketChannel.open(new InetSocketAddress("127.0.0.1", port))));
        }

        public Connection connect(OutboundRequestHandle handle, Collection active, Collection idle) {
            Collection there = active.isEmpty() ? idle : active;
            return there.isEmpty() ? null : (Connection) there.iterator().next();
        }
    }

    private static final class Connected extends OverChannel implements Connection {
        Connected(SocketChannel channel) {
            super(channel);
        }

        public void populateContext(OutboundRequestHandle handle, Collection context) {
        }

        public InvocationConstraints getUnfulfilledConstraints(OutboundRequestHandle handle) {
            return InvocationConstraints.EMPTY;
        }

        public void writeRequestData(OutboundRequestHandle handle, OutputStream stream) {
        }

        public IOException readResponseData(OutboundRequestHandle handle, InputStream stream) {
            return null;
        }

        public void close() throws IOException {
            channel.close();
        }
    }

    // -- both --------------------------------------------------------------------------------------------------

    private static SocketChannel quick(SocketChannel channel) throws IOException {
        return channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
    }

    private static int number(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": *(\\d+)").matcher(line);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + name + " in " + line);
        }
        return Integer.parseInt(found.group(1));
    }

    private static double cpu() {
        Object system = ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime() / 1e9;
    }

    private static String used(double since) throws IOException {
        long peak = 0;
        if (Files.exists(Paths.get("/proc/self/status"))) {
            for (String line : Files.readAllLines(Paths.get("/proc/self/status"))) {
                if (line.startsWith("VmHWM:")) {
                    peak = Long.parseLong(line.replaceAll("\\D", "")) * 1024;
                }
            }
        }
        return "\"cpu\": " + (cpu() - since) + ", \"peak\": " + peak;
    }
}
