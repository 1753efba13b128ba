package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.gson.JsonObject;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import java.io.IOException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** The demo model on a server of the class, and what a run without a server gives. */
abstract class ServerFixture {
  static Served served;

  @BeforeAll
  static void start() throws IOException {
    served = Served.start(Served.options());
  }

  @AfterAll
  static void stop() {
    served.close();
  }

  static Generation lone(GenerateRequest request) {
    return served.loupe().run(request).getFirst();
  }

  static void usage(JsonObject json, int prompt, int completion) {
    JsonObject usage = json.getAsJsonObject("usage");
    assertEquals(prompt, usage.get("prompt_tokens").getAsInt());
    assertEquals(completion, usage.get("completion_tokens").getAsInt());
    assertEquals(prompt + completion, usage.get("total_tokens").getAsInt());
  }
}
