package interop;

import io.rsocket.ConnectionSetupPayload;
import io.rsocket.Payload;
import io.rsocket.RSocket;
import io.rsocket.exceptions.RejectedSetupException;
import java.util.Map;
import java.util.function.Consumer;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** The responder of either side, doing the program and telling of it. */
final class Responder implements RSocket {
    @Override
    public Mono<Void> fireAndForget(Payload payload) {
        Map<String, Object> told = Values.told(payload);
        Lines.fact("fired", "data", told.get("data"), "metadata", told.get("metadata"));
        return Mono.empty();
    }

    @Override
    public Mono<Void> metadataPush(Payload payload) {
        Lines.fact("pushed", "metadata", Values.shown(Values.metadata(payload)));
        return Mono.empty();
    }

    @Override
    public Mono<Payload> requestResponse(Payload payload) {
        return Program.answer(payload);
    }

    @Override
    public Flux<Payload> requestStream(Payload payload) {
        return Program.stream(payload);
    }

    @Override
    public Flux<Payload> requestChannel(Publisher<Payload> payloads) {
        return Flux.from(new Half(payloads));
    }

    /** A server's word on who connects. */
    static Mono<RSocket> welcome(ConnectionSetupPayload setup, RSocket guest, boolean reject, Consumer<RSocket> come) {
        Lines.fact(
            "setup",
            "data", Values.shown(Values.data(setup)),
            "metadata", Values.shown(Values.metadata(setup)),
            "data_mime", setup.dataMimeType(),
            "metadata_mime", setup.metadataMimeType());
        if (reject) {
            return Mono.error(new RejectedSetupException("no entry"));
        }
        come.accept(guest);
        return Mono.just(new Responder());
    }
}
