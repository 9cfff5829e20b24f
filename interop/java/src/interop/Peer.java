package interop;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.Unpooled;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.SocketAcceptor;
import io.rsocket.core.LeaseSpec;
import io.rsocket.core.RSocketConnector;
import io.rsocket.core.RSocketServer;
import io.rsocket.core.Resume;
import io.rsocket.lease.Lease;
import io.rsocket.metadata.CompositeMetadataCodec;
import io.rsocket.metadata.TaggingMetadataCodec;
import io.rsocket.metadata.WellKnownMimeType;
import io.rsocket.resume.InMemoryResumableFramesStore;
import io.rsocket.transport.ClientTransport;
import io.rsocket.transport.ServerTransport;
import io.rsocket.transport.netty.client.TcpClientTransport;
import io.rsocket.transport.netty.client.WebsocketClientTransport;
import io.rsocket.transport.netty.server.CloseableChannel;
import io.rsocket.transport.netty.server.TcpServerTransport;
import io.rsocket.transport.netty.server.WebsocketServerTransport;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;
import org.reactivestreams.Subscription;
import reactor.core.Disposable;
import reactor.core.publisher.BaseSubscriber;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.util.retry.Retry;

/** rsocket-java as a peer: its own client and server over its own transports, under the orders of interop/control.py. */
public final class Peer {
    private static final Duration COME_BACK = Duration.ofMillis(50);
    private static final int HELD = 1 << 20;
    private static final Duration SESSION = Duration.ofSeconds(30);

    private final Map<Long, Disposable> flows = new ConcurrentHashMap<>();
    private final Queue<RSocket> guests = new ConcurrentLinkedQueue<>();
    private volatile RSocket socket; // the client's, or at a server that of the last connection
    private RSocket client;
    private CloseableChannel listening;

    /** Takes orders until there are no more. */
    public static void main(String[] words) throws Exception {
        Peer peer = new Peer();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Lines.fact("started");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            Lines.Order order = Lines.read(line);
            Reply reply = new Reply(order.number("id"));
            try {
                peer.obey(order, reply);
            } catch (Exception error) {
                reply.error(error);
            }
        }
        System.exit(0); // its threads wait for more
    }

    private void obey(Lines.Order order, Reply reply) {
        switch (order.text("do")) {
            case "connect":
                connect(order, reply);
                break;
            case "serve":
                serve(order, reply);
                break;
            case "request":
                request(order, reply);
                break;
            case "burst":
                new Burst(order.number("count"), (int) order.number("size"), reply).run(socket);
                break;
            case "fire":
                socket.fireAndForget(asked(order)).subscribe(null, reply::error, reply::ok);
                break;
            case "push":
                socket.metadataPush(asked(order)).subscribe(null, reply::error, reply::ok);
                break;
            case "stream":
                follow(order, reply, socket.requestStream(asked(order)));
                break;
            case "channel":
                follow(order, reply, socket.requestChannel(source(order, reply)));
                break;
            case "more":
                ((Taker) flows.get(order.number("of"))).request(order.number("n"));
                break;
            case "cancel":
                flows.get(order.number("of")).dispose();
                break;
            case "close":
                close();
                reply.ok();
                break;
            case "hangup":
                socket.dispose();
                reply.ok();
                break;
            default:
                throw new IllegalArgumentException("no such order: " + order.text("do"));
        }
    }

    // -- connecting and serving --------------------------------------------------------------------------------

    private void connect(Lines.Order order, Reply reply) {
        RSocketConnector connector = RSocketConnector.create()
            .setupPayload(Values.payload(read(order, "setup_data"), read(order, "setup_metadata")))
            .dataMimeType(order.text("data_mime"))
            .metadataMimeType(order.text("metadata_mime"))
            .keepAlive(Duration.ofMillis(order.number("keepalive")), Duration.ofMillis(order.number("lifetime")))
            .acceptor(SocketAcceptor.with(new Responder()));
        if (order.number("mtu") > 0) {
            connector.fragment((int) order.number("mtu"));
        }
        if (order.part("lease") != null) {
            connector.lease(leases(order.part("lease")));
        }
        if (order.text("resume") != null) {
            byte[] token = ByteBufUtil.decodeHexDump(order.text("resume"));
            connector.resume(
                resume("client")
                    .token(() -> Unpooled.wrappedBuffer(token))
                    .retry(Retry.fixedDelay(Long.MAX_VALUE, COME_BACK)));
        }
        connector.connect(to(URI.create(order.text("uri")), order.truth("bare"))).subscribe(connected -> {
            client = socket = connected;
            watch(connected, "closed");
            reply.ok();
        }, reply::error);
    }

    private static ClientTransport to(URI uri, boolean bare) {
        if (uri.getScheme().equals("tcp")) {
            return TcpClientTransport.create(uri.getHost(), uri.getPort());
        }
        WebsocketClientTransport transport = WebsocketClientTransport.create(uri);
        return bare ? transport : transport.webSocketSpec(spec -> spec.protocols("rsocket"));
    }

    private void serve(Lines.Order order, Reply reply) {
        boolean reject = order.truth("reject");
        RSocketServer server = RSocketServer.create((setup, guest) -> Responder.welcome(setup, guest, reject, come -> {
            guests.add(come);
            socket = come;
            watch(come, "gone");
        }));
        if (order.number("mtu") > 0) {
            server.fragment((int) order.number("mtu"));
        }
        if (order.part("lease") != null) {
            server.lease(leases(order.part("lease")));
        }
        if (order.truth("resume")) {
            server.resume(resume("server"));
        }
        server.bind(at(order)).subscribe(bound -> {
            listening = bound;
            reply.say("ready", order.text("transport") + "://127.0.0.1:" + bound.address().getPort());
        }, reply::error);
    }

    private static ServerTransport<CloseableChannel> at(Lines.Order order) {
        if (order.text("transport").equals("tcp")) {
            return TcpServerTransport.create("127.0.0.1", 0);
        }
        WebsocketServerTransport transport = WebsocketServerTransport.create("127.0.0.1", 0);
        return order.truth("bare") ? transport : transport.webSocketSpec(spec -> spec.protocols("rsocket"));
    }

    /** Sessions that hold 1 MiB of what was sent: by default it is 100,000 bytes, and a break while more is away ends one. */
    private static Resume resume(String side) {
        return new Resume()
            .sessionDuration(SESSION)
            .storeFactory(token -> new InMemoryResumableFramesStore(side, token, HELD));
    }

    /** It is granted once. */
    private static Consumer<LeaseSpec> leases(Lines.Order lease) {
        int n = (int) lease.number("n");
        Duration life = Duration.ofMillis(lease.number("ttl"));
        return spec -> {
            if (n > 0) {
                spec.sender(() -> Flux.just(Lease.create(life, n)).concatWith(Flux.never()));
            }
        };
    }

    /** Tell when a connection ends, and a client also that it was refused. */
    private static void watch(RSocket one, String name) {
        one.onClose().subscribe(null, error -> {
            Lines.fact(name, "message", Values.message(error));
            if (name.equals("closed") && Values.code(error) != null) {
                Lines.fact("refused", "code", Values.code(error), "message", Values.message(error));
            }
        }, () -> Lines.fact(name, "message", ""));
    }

    private void close() {
        if (client != null) {
            client.dispose();
        }
        for (RSocket guest = guests.poll(); guest != null; guest = guests.poll()) {
            guest.dispose();
        }
        if (listening != null) {
            listening.dispose();
        }
        client = null;
        listening = null;
        flows.clear();
    }

    // -- asking ------------------------------------------------------------------------------------------------

    private void request(Lines.Order order, Reply reply) {
        Mono<Payload> answer = socket.requestResponse(asked(order));
        Disposable flow = answer.map(Values::told).defaultIfEmpty(Collections.emptyMap()).subscribe(told -> {
            if (told.isEmpty()) {
                reply.say("complete", true);
            } else {
                reply.say("next", told, "complete", true);
            }
        }, reply::error);
        flows.put(order.number("id"), flow);
    }

    private void follow(Lines.Order order, Reply reply, Flux<Payload> items) {
        Taker taker = new Taker(order.number("n"), reply);
        flows.put(order.number("id"), taker);
        items.subscribe(taker);
    }

    /** This side's items of a channel. */
    private static Flux<Payload> source(Lines.Order order, Reply reply) {
        List<Lines.Order> items = order.parts("items");
        int count = items.size();
        RuntimeException error = order.text("fail") == null ? null : Values.error(0x201, order.text("fail"));
        boolean endless = order.truth("endless");
        Flux<Payload> made = Program.items(endless ? Long.MAX_VALUE : count, i -> {
            if (i >= count) {
                return Values.payload(Program.bytes(i - count), null);
            }
            Lines.Order item = items.get((int) i);
            byte[] metadata = i == 0 && order.text("route") != null ? routed(order.text("route")) : read(item, "metadata");
            return Values.payload(read(item, "data"), metadata);
        }, error, null);
        return (order.truth("open") ? made.concatWith(Flux.never()) : made).doOnCancel(() -> reply.say("stopped", true));
    }

    private static Payload asked(Lines.Order order) {
        String route = order.text("route");
        return Values.payload(read(order, "data"), route == null ? read(order, "metadata") : routed(route));
    }

    private static byte[] read(Lines.Order order, String name) {
        return Values.read(order.text(name));
    }

    /** Composite metadata of its own making: a route, and an entry of a type that nobody knows. */
    private static byte[] routed(String route) {
        ByteBufAllocator memory = ByteBufAllocator.DEFAULT;
        CompositeByteBuf made = memory.compositeBuffer();
        ByteBuf tag = TaggingMetadataCodec.createTaggingContent(memory, Collections.singletonList(route));
        CompositeMetadataCodec.encodeAndAddMetadata(made, memory, WellKnownMimeType.MESSAGE_RSOCKET_ROUTING, tag);
        ByteBuf extra = Unpooled.copiedBuffer("extra", StandardCharsets.US_ASCII);
        CompositeMetadataCodec.encodeAndAddMetadata(made, memory, "text/x-interop", extra);
        byte[] bytes = ByteBufUtil.getBytes(made);
        made.release();
        return bytes;
    }

    /** A subscriber that tells everything. Demand is by hand. */
    private static final class Taker extends BaseSubscriber<Payload> {
        private final long first;
        private final Reply reply;

        Taker(long first, Reply reply) {
            this.first = first;
            this.reply = reply;
        }

        @Override
        protected void hookOnSubscribe(Subscription subscription) {
            if (first > 0) {
                subscription.request(first);
            }
        }

        @Override
        protected void hookOnNext(Payload item) {
            reply.say("next", Values.told(item));
        }

        @Override
        protected void hookOnComplete() {
            reply.say("complete", true);
        }

        @Override
        protected void hookOnError(Throwable error) {
            reply.error(error);
        }
    }

    /** Answers an order. */
    static final class Reply {
        private final long id;

        Reply(long id) {
            this.id = id;
        }

        void say(Object... more) {
            Map<String, Object> line = Lines.map(more);
            line.put("id", id);
            Lines.say(line);
        }

        void ok() {
            say("ok", Collections.emptyMap());
        }

        void error(Throwable error) {
            say("error", Values.failure(error));
        }
    }
}
