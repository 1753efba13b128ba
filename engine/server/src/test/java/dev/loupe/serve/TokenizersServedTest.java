package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.text.TokenizerCases;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Tokenizers as models bring them, beside random weights, on a server. */
class TokenizersServedTest {
  @TempDir private Path temporary;

  @ParameterizedTest
  @MethodSource("dev.loupe.text.TokenizerCases#folders")
  void idsAndText(Path tokenizer) throws IOException {
    Path model = temporary.resolve("model");
    Gpt2Config config =
        new Gpt2Config(1, 2, 12, 160, 1031, 20, Activation.GELU_NEW, 1e-5f, true, false, -1, -1);
    RandomCheckpoint.write(config, 5, model, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    TokenizerCases.copy(tokenizer, model);
    List<TokenizerCases.Text> texts = TokenizerCases.texts(tokenizer);
    List<Integer> front = TokenizerCases.front(texts);
    Loupe loupe = Loupe.open(model, Options.defaults().backend(Backend.CPU));
    try (Served served =
        Served.start(loupe, Served.options(), why -> fail(why), Duration.ofSeconds(30))) {
      for (TokenizerCases.Text text : texts) {
        if (text.ids().isEmpty()) {
          continue; // an empty prompt is another matter
        }
        JsonObject body = new JsonObject();
        body.addProperty("text", text.text());
        body.addProperty("special", true);
        List<Integer> all = new ArrayList<>(front);
        all.addAll(text.ids());
        assertEquals(all, read(served, body), text.text());
        body.addProperty("add_special_tokens", false);
        assertEquals(text.ids(), read(served, body), text.text());
        body.remove("text");
        body.addProperty("prompt", text.text());
        assertEquals(text.ids(), tokenize(served, body), text.text());
        body.addProperty("add_special_tokens", true);
        assertEquals(all, tokenize(served, body), text.text());
        String back = "{'tokens': %s}".formatted(text.ids());
        assertEquals(
            text.decoded(),
            served.post("/detokenize", back).has(200).json().get("prompt").getAsString());
        String echo =
            "{'prompt': %s, 'echo': true, 'max_tokens': 0, 'special': true}".formatted(text.ids());
        assertEquals(text.decoded(), served.complete(echo).has(200).text(0));
        body.addProperty("add_special_tokens", false);
        body.addProperty("echo", true);
        body.addProperty("max_tokens", 0);
        Served.Answer answer = ask(served, "/v1/completions", body);
        assertEquals(text.decoded(), answer.text(0));
        JsonObject usage = answer.json().getAsJsonObject("usage");
        assertEquals(text.ids().size(), usage.get("prompt_tokens").getAsInt());
      }
    }
  }

  private static Served.Answer ask(Served served, String path, JsonObject body) {
    return served
        .ask(served.to(path).POST(BodyPublishers.ofString(body.toString(), UTF_8)))
        .has(200);
  }

  private static List<Integer> tokenize(Served served, JsonObject body) {
    return ask(served, "/tokenize", body).json().getAsJsonArray("tokens").asList().stream()
        .map(JsonElement::getAsInt)
        .toList();
  }

  /** The ids that a run reads. */
  private static List<Integer> read(Served served, JsonObject body) {
    String events =
        served
            .send(served.to("/api/runs").POST(BodyPublishers.ofString(body.toString(), UTF_8)))
            .body();
    for (String line : events.lines().toList()) {
      if (line.startsWith("data: {")) {
        JsonObject event = JsonParser.parseString(line.substring(6)).getAsJsonObject();
        if (event.has("tokens")) {
          JsonArray tokens = event.getAsJsonArray("tokens");
          return tokens.asList().stream()
              .map(JsonElement::getAsJsonObject)
              .map(token -> token.get("id").getAsInt())
              .toList();
        }
      }
    }
    throw new AssertionError(events);
  }
}
