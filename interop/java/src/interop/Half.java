package interop;

import io.rsocket.Payload;
import java.security.MessageDigest;
import java.util.ArrayDeque;
import java.util.Queue;
import org.reactivestreams.Publisher;
import org.reactivestreams.Subscriber;
import org.reactivestreams.Subscription;

/** The responder's half of a channel: what comes in, and what goes out for it. See Channel in interop/common.js. */
final class Half implements Publisher<Payload>, Subscriber<Payload>, Subscription {
    private final Publisher<Payload> inbound;
    private final Queue<Payload> queue = new ArrayDeque<>();
    private final MessageDigest hash = Values.sha();
    private Subscriber<? super Payload> outbound;
    private Subscription source;
    private String mode = "";
    private String[] words;
    private long wanted;
    private long count;
    private long bytes;
    private boolean ended;
    private boolean over;
    private boolean busy;

    Half(Publisher<Payload> inbound) {
        this.inbound = inbound;
    }

    // Publisher and subscription: what goes out.

    @Override
    public void subscribe(Subscriber<? super Payload> subscriber) {
        outbound = subscriber;
        subscriber.onSubscribe(this);
        inbound.subscribe(this);
    }

    @Override
    public synchronized void request(long n) {
        wanted = wanted + n < 0 ? Long.MAX_VALUE : wanted + n;
        flush();
    }

    @Override
    public synchronized void cancel() {
        if (!over && mode.equals("never")) {
            Lines.fact("canceled", "tag", words[1]);
        }
        over = true;
        if (source != null) {
            source.cancel();
        }
    }

    // Subscriber: what comes in.

    @Override
    public void onSubscribe(Subscription subscription) {
        source = subscription;
        if (over) {
            subscription.cancel();
        } else {
            subscription.request(1); // the first item says what to do
        }
    }

    @Override
    public synchronized void onNext(Payload payload) {
        if (count == 0) {
            begin(Values.data(payload));
        }
        item(payload);
    }

    @Override
    public synchronized void onError(Throwable error) {
        over = true;
        Lines.fact("failed", "message", Values.message(error), "code", Values.code(error));
        outbound.onError(error);
    }

    @Override
    public synchronized void onComplete() {
        if (mode.equals("half") || mode.equals("never")) {
            Lines.fact("ended", "tag", mode, "count", count);
            return;
        }
        if (mode.equals("sum")) {
            queue.add(Values.text(count + " " + bytes + " " + Values.ended(hash, new byte[0])));
        }
        finish();
    }

    // Inside.

    private void begin(byte[] first) {
        words = Program.words(first);
        mode = words[0];
        if (mode.equals("half")) {
            queue.add(Values.text("half"));
            finish();
        }
        if (mode.equals("never")) {
            Lines.fact("never", "tag", words[1]);
        } else {
            source.request(mode.equals("one") ? 1 : mode.equals("echo") ? 8 : 64);
        }
    }

    private void item(Payload payload) {
        byte[] data = Values.data(payload);
        count++;
        bytes += data.length;
        hash.update(data);
        switch (mode) {
            case "echo":
            case "one":
                queue.add(Values.copy(payload));
                flush();
                break;
            case "take":
                if (count == Long.parseLong(words[1])) {
                    source.cancel();
                    queue.add(Values.text("took " + words[1]));
                    finish();
                }
                break;
            case "fail":
                if (count == Long.parseLong(words[1])) {
                    over = true;
                    source.cancel();
                    outbound.onError(Values.error(0x201, Program.joined(words, 2)));
                }
                break;
            case "never":
                break;
            default:
                if (count > 1) {
                    source.request(1);
                }
        }
    }

    private void finish() {
        ended = true;
        flush();
    }

    private void flush() {
        if (busy) {
            return; // from within onNext: the loop below goes on
        }
        busy = true;
        while (!over && wanted > 0 && !queue.isEmpty()) {
            wanted--;
            outbound.onNext(queue.remove());
            if ((mode.equals("echo") || mode.equals("one")) && !ended) {
                source.request(1);
            }
        }
        busy = false;
        if (!over && ended && queue.isEmpty()) {
            over = true;
            outbound.onComplete();
        }
    }
}
