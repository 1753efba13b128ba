package dev.loupe.hub;

import static dev.loupe.hub.FakeHub.cdn;
import static dev.loupe.hub.FakeHub.get;
import static dev.loupe.hub.FakeHub.head;
import static dev.loupe.hub.FakeHub.status;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What did not come is asked for again, by the same pull or the next, from where it ended. */
@Timeout(200)
class PullAgainTest extends PullFixture {
  @ParameterizedTest
  @ValueSource(ints = {408, 429, 500, 502, 503, 504})
  void aBusyServerIsAskedAgain(int status) throws IOException {
    for (String request : List.of(FakeHub.LIST, head(WEIGHTS), get("config.json"), cdn(WEIGHTS))) {
      server.fault(request, status(status));
      server.fault(request, status(status, "Retry-After", "0"));
    }
    pull();
    assertWhole();
  }

  @Test
  void aServerSaysHowLongItIsBusy() throws IOException {
    server.fault(FakeHub.LIST, status(429, "Retry-After", "1"));
    long start = System.nanoTime();
    pull();
    assertWhole();
    assertTrue(System.nanoTime() - start >= 1e9, "asked too early");
  }

  @Test
  void aServerThatStaysBusyIsGivenUp() throws IOException {
    server.faults(cdn(WEIGHTS), status(503));
    refused("503", "tried 3 times");
    assertEquals(3, requests("GET cdn").size());
    assertEquals(List.of(".loupe-pull"), names(folder));
    server.faults(FakeHub.LIST, status(429));
    refused("429", "HF_TOKEN", "tried 3 times");
  }

  @Test
  void aBrokenLineIsTakenUpWhereItBroke() throws IOException {
    server.fault(cdn(WEIGHTS), server.cut(WEIGHTS, 1_000_000));
    pull();
    assertWhole();
    String again = requests("GET cdn").getLast();
    assertTrue(again.matches(".* bytes=[1-9][0-9]*- \"v1\""), again);
    assertEquals(2, requests("GET cdn").size());
  }

  @Test
  void manyBrokenLinesAreNoMatterAsLongAsSomethingComes() throws IOException {
    server.put(WEIGHTS, new byte[9_000_000]);
    for (int i = 0; i < 6; i++) {
      server.fault(
          cdn(WEIGHTS),
          exchange -> {
            String range = exchange.getRequestHeaders().getFirst("Range");
            int from = range == null ? 0 : Integer.parseInt(range.replaceAll("[^0-9]", ""));
            exchange
                .getResponseHeaders()
                .set("Content-Range", "bytes %d-8999999/9000000".formatted(from));
            exchange.sendResponseHeaders(range == null ? 200 : 206, 9_000_000 - from);
            exchange.getResponseBody().write(new byte[1_400_000]);
            exchange.getResponseBody().flush();
            return true;
          });
    }
    pull();
    assertWhole();
  }

  @Test
  void aPullThatFailedIsTakenUpByTheNext() throws IOException {
    server.fault(cdn(WEIGHTS), server.cut(WEIGHTS, 2_000_000));
    server.faults(cdn(WEIGHTS), status(500));
    refused("500");
    long kept = Files.size(part());
    assertTrue(kept > 0 && kept <= 2_000_000, kept + " bytes");
    server.close();
    server = FakeHub.withModel();
    pull();
    assertWhole();
    assertEquals(1, requests("GET cdn").size());
    assertTrue(requests("GET cdn").getFirst().endsWith(" bytes=" + kept + "-"), "" + server.log());
  }

  @Test
  void aServerWithoutRangesSendsAllAgain() throws IOException {
    server.ranges = false;
    left(Arrays.copyOf(FakeHub.weights(), 1_234_567));
    pull();
    assertWhole();
  }

  @Test
  void whatIsWholeButUnnamedIsNotFetched() throws IOException {
    left(FakeHub.weights());
    pull();
    assertWhole();
    assertEquals(List.of(), requests("GET cdn"));
  }

  @ParameterizedTest
  @ValueSource(ints = {1_000, 3_000_000, 4_000_000})
  void aDamagedLeftoverIsFetchedAnew(int size) throws IOException {
    byte[] damaged = Arrays.copyOf(FakeHub.weights(), size);
    damaged[500]++;
    left(damaged);
    pull();
    assertWhole();
  }

  @Test
  void afterOtherBytesThanAskedForAllAreAskedFor() throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    server.fault(cdn(WEIGHTS), status(206));
    pull();
    assertWhole();
    assertFalse(requests("GET cdn").getLast().contains("bytes="), "" + server.log());
  }

  @Test
  void aRangeThatIsRefusedIsAskedForFromTheStart() throws IOException {
    left(Arrays.copyOf(FakeHub.weights(), 1000));
    server.fault(cdn(WEIGHTS), status(416));
    pull();
    assertWhole();
  }

  @Test
  void aServerThatFallsSilentIsAskedAgain() throws IOException {
    server.silence = Duration.ofMillis(500);
    server.fault(cdn(WEIGHTS), server.stall(WEIGHTS, 700_000, Duration.ofSeconds(100)));
    server.fault(
        head("config.json"),
        exchange -> {
          FakeHub.pause(Duration.ofSeconds(100));
          return true;
        });
    long start = System.nanoTime();
    pull();
    assertWhole();
    assertTrue(System.nanoTime() - start < 90e9, "silence is not waited out");
    assertTrue(requests("GET cdn").getLast().contains("bytes="), "" + server.log());
  }

  @Test
  void aServerThatStaysSilentIsGivenUp() throws IOException {
    server.silence = Duration.ofMillis(300);
    server.faults(cdn(WEIGHTS), server.stall(WEIGHTS, 0, Duration.ofSeconds(100)));
    refused("in the middle of " + WEIGHTS, "tried 3 times");
  }

  @Test
  void aHubThatWasNeverReachedIsNotWaitedFor() throws IOException {
    server.close();
    String message = String.valueOf(refused("localhost:", "takes no connection").getMessage());
    assertFalse(message.contains("tried"), message);
  }

  @Test
  void aHubThatWasReachedIsTriedAgain() throws IOException {
    server.fault(
        head("config.json"),
        exchange -> {
          server.close();
          return true;
        });
    refused("localhost:", "tried 3 times");
  }
}
