package dev.loupe.serve.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.serve.Served;
import java.time.Duration;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Room for large answers. */
@Timeout(200)
class OutboxTest {
  @Test
  void theOutboxHasABoundAndAnOrder() throws Exception {
    Outbox outbox = new Outbox(1 << 20);
    long never = System.nanoTime() + Duration.ofHours(1).toNanos();
    Outbox.Share first = outbox.share(700 << 10, never);
    assertFalse(outbox.isShort());
    try (ExecutorService threads = Executors.newCachedThreadPool()) {
      Future<Outbox.Share> large = threads.submit(() -> outbox.share(5L << 30, never));
      Served.await("it waits", outbox::isShort);
      Future<Outbox.Share> small = threads.submit(() -> outbox.share(1, never));
      ApiException late =
          assertThrows(ApiException.class, () -> outbox.share(1 << 20, System.nanoTime()));
      assertEquals(503, late.status());
      first.shrink(100 << 10);
      assertEquals(100 << 10, outbox.taken());
      assertFalse(large.isDone());
      first.close();
      Outbox.Share all = large.get();
      assertEquals(1 << 20, outbox.taken(), "what is too large takes all there is");
      assertFalse(small.isDone());
      all.shrink(5L << 30); // never more than it has
      all.close();
      all.close();
      small.get().close();
      assertEquals(0, outbox.taken());
      Future<Outbox.Share> most = threads.submit(() -> outbox.share(1 << 20, never));
      most.get();
      Future<Outbox.Share> left = threads.submit(() -> outbox.share(1, never));
      Served.await("it waits", outbox::isShort);
      left.cancel(true); // the client went
      Served.await("it left", () -> !outbox.isShort());
    }
  }
}
