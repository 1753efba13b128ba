package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonElement;
import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.Sampling;
import java.net.Socket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Clients whose texts are written by one GPU, several at a time. */
@OnGpu
@Timeout(600)
class CudaServerTest {
  private static final int SLOTS = 5;

  @TempDir private Path folder;
  private Served served;

  @BeforeEach
  void start() throws Exception {
    Options options = Options.defaults().backend(Backend.CUDA).precision(Precision.F16);
    Loupe loupe = Loupe.open(TinyModel.ofIds(folder).folder(), options);
    ServerOptions serving = BusyServer.options(100, SLOTS, 600);
    served = Served.start(loupe, serving, why -> fail(why), Duration.ofSeconds(60));
  }

  @AfterEach
  void end() {
    served.close();
  }

  private static String body(int which) {
    return """
        {'prompt': [%d, 7, %d], 'max_tokens': %d, 'seed': %d, 'n': %d, 'temperature': %s%s}"""
        .formatted(
            which,
            3 * which,
            1 + which / 2,
            which,
            1 + which % 3,
            which % 4 == 0 ? "0" : "0.9",
            which % 3 == 1 ? ", 'logprobs': 2" : "");
  }

  private JsonElement choices(int which) {
    return served.complete(body(which)).has(200).json().get("choices");
  }

  @Test
  void aHundredRequestsAreAnsweredAsIfEachWereAlone() throws Exception {
    List<JsonElement> alone = new ArrayList<>();
    for (int i = 0; i < 12; i++) {
      alone.add(choices(i));
    }
    List<Integer> ids = new ArrayList<>();
    alone
        .get(4)
        .getAsJsonArray()
        .get(0)
        .getAsJsonObject()
        .getAsJsonArray("token_ids")
        .forEach(id -> ids.add(id.getAsInt()));
    GenerateRequest request = GenerateRequest.ids(4, 7, 12).tokens(3).sampling(Sampling.greedy());
    List<Integer> written =
        served.loupe().run(request).getFirst().tokens().stream()
            .skip(3)
            .map(token -> token.id())
            .toList();
    assertEquals(written, ids, "a run without the server");

    try (ExecutorService clients = Executors.newFixedThreadPool(12)) {
      List<Future<JsonElement>> answers = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        int which = i * 7 % 12;
        answers.add(clients.submit(() -> choices(which)));
      }
      for (int i = 0; i < 100; i++) {
        assertEquals(alone.get(i * 7 % 12), answers.get(i).get(), "request " + i);
      }
    }
    served.awaitIdle();
  }

  @Test
  void aClientThatLeavesFreesItsSlots() throws Exception {
    JsonElement alone = choices(3);
    String all = "{'prompt': [1], 'max_tokens': 39, 'n': %d, 'stream': true}".formatted(4 * SLOTS);
    try (Socket leaves = served.asking(all)) {
      assertEquals(300, leaves.getInputStream().readNBytes(300).length);
    }
    assertEquals(alone, choices(3));
    served.awaitIdle();
  }
}
