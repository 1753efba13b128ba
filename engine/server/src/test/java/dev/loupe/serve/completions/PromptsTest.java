package dev.loupe.serve.completions;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.serve.Served;
import dev.loupe.serve.http.Fields;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** When the prompts of a request are read. */
@Timeout(200)
class PromptsTest {
  @Test
  void promptsAreNotReadForAClientThatLeft() throws Exception {
    try (Loupe loupe = Served.demo()) {
      JsonArray texts = new JsonArray();
      for (int i = 0; i < 50; i++) {
        texts.add("To be or not to be " + i);
      }
      JsonObject request = new JsonObject();
      request.add("prompt", texts);
      Prompts prompts =
          Prompts.of(
              "prompt",
              new Fields(request),
              loupe,
              new Prompts.Writing("max_tokens", 5, false),
              Prompts.Truncation.NONE);
      assertEquals(50, prompts.read(() -> {}).size());
      int[] asked = {0};
      assertThrows(
          CancellationException.class,
          () ->
              prompts.read(
                  () -> {
                    if (++asked[0] == 3) {
                      throw new CancellationException();
                    }
                  }));
      assertEquals(3, asked[0]);
    }
  }
}
