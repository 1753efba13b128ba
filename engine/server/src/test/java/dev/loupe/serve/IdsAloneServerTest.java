package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Models without a tokenizer, and with a padded vocabulary, on a server. */
@Timeout(100)
class IdsAloneServerTest {
  private static final String IDS = "[5, 300, 17, 17, 0, 331]";

  @TempDir Path folder;
  private @Nullable Served running;

  private Served serve(TinyModel model) throws Exception {
    Loupe loupe = Loupe.open(model.folder(), Options.defaults().backend(Backend.CPU).threads(2));
    running = Served.start(loupe, Served.options(), why -> fail(why), Duration.ofSeconds(30));
    return running;
  }

  @AfterEach
  void close() {
    Objects.requireNonNull(running).close();
  }

  private static JsonArray tokenIds(JsonObject choice) {
    return choice.getAsJsonArray("token_ids");
  }

  @Test
  void completionsAreIds() throws Exception {
    Served served = serve(TinyModel.ofIds(folder));
    String ask = "{'prompt': %s, 'max_tokens': 5, 'temperature': 0%s}";
    JsonObject plain = served.complete(ask.formatted(IDS, "")).has(200).choice(0);
    assertEquals("", plain.get("text").getAsString());
    assertEquals(5, tokenIds(plain).size());
    JsonObject echo = served.complete(ask.formatted(IDS, ", 'echo': true")).has(200).choice(0);
    JsonArray all = JsonParser.parseString(IDS).getAsJsonArray();
    all.addAll(tokenIds(plain));
    assertEquals(all, tokenIds(echo));
    JsonObject odds = served.complete(ask.formatted(IDS, ", 'logprobs': 2")).has(200).choice(0);
    JsonObject logprobs = odds.getAsJsonObject("logprobs");
    int first = tokenIds(plain).get(0).getAsInt();
    assertEquals("token_id:" + first, logprobs.getAsJsonArray("tokens").get(0).getAsString());
    JsonObject top = logprobs.getAsJsonArray("top_logprobs").get(0).getAsJsonObject();
    assertEquals(2, top.size());
    assertTrue(top.has("token_id:" + first));

    for (String more : List.of("", ", 'echo': true", ", 'echo': true, 'n': 2")) {
      JsonArray[] streamed = {new JsonArray(), new JsonArray()};
      List<JsonObject> chunks = served.stream(ask.formatted(IDS, ", 'stream': true" + more));
      assertTrue(chunks.size() >= 5, "they come one by one");
      for (JsonObject chunk : chunks) {
        for (JsonElement choice : chunk.getAsJsonArray("choices")) {
          JsonObject one = choice.getAsJsonObject();
          streamed[one.get("index").getAsInt()].addAll(tokenIds(one));
          assertEquals("", one.get("text").getAsString());
        }
      }
      assertEquals(more.isEmpty() ? tokenIds(plain) : all, streamed[0]);
      assertEquals(more.contains("'n'") ? all : new JsonArray(), streamed[1]);
    }
  }

  @Test
  void textIsRefusedByName() throws Exception {
    Served served = serve(TinyModel.ofIds(folder));
    JsonObject error = served.complete("{'prompt': 'hello'}").refused(400, "tokenizer.json");
    assertEquals("prompt", error.get("param").getAsString());
    error = served.complete("{'prompt': [1], 'stop': 'x'}").refused(400, "stop", "token ids");
    assertEquals("stop", error.get("param").getAsString());
    served.complete("{'prompt': [333]}").refused(400, "332");
    served.complete("{'max_tokens': 2}").has(200); // from the beginning-of-text token
  }

  private static String run(Served served, String body) {
    HttpResponse<String> response =
        served.send(served.to("/api/runs").POST(BodyPublishers.ofString(body.replace('\'', '"'))));
    assertEquals(200, response.statusCode(), response.body());
    String last = response.body().strip().lines().reduce((_, line) -> line).orElseThrow();
    return JsonParser.parseString(last.substring(6)).getAsJsonObject().get("id").getAsString();
  }

  @Test
  void theWorkbenchHasIds() throws Exception {
    Served served = serve(TinyModel.ofIds(folder));
    JsonObject info = served.get("/api/info").has(200).json();
    assertFalse(info.get("text").getAsBoolean());
    String example = info.get("example").getAsString();
    JsonObject first = served.get("/api/runs/" + example).has(200).json();
    assertTrue(first.getAsJsonArray("tokens").size() > 8);
    String id = run(served, "{'ids': %s, 'tokens': 4}".formatted(IDS));
    JsonArray tokens = served.get("/api/runs/" + id).has(200).json().getAsJsonArray("tokens");
    assertEquals("300", tokens.get(1).getAsJsonObject().get("label").getAsString());
    served.get("/api/heads").has(200);
    served.get("/api/runs/" + id + "/lens?q=3").has(200);
    served.get("/api/runs/" + id + "/stats").has(200);
    HttpResponse<String> text =
        served.send(served.to("/api/runs").POST(BodyPublishers.ofString("{\"text\": \"a\"}")));
    assertEquals(400, text.statusCode(), text.body());
    HttpResponse<String> html =
        served.send(served.to("/api/runs/" + id + "/export?as=csv&layers=0&heads=1"));
    assertEquals(200, html.statusCode(), html.body());
  }

  @Test
  void theLensOfAPaddedVocabulary() throws Exception {
    Served served = serve(TinyModel.padded(folder));
    String id = run(served, "{'text': 'To be or not', 'tokens': 3}");
    JsonArray tokens = served.get("/api/runs/" + id).has(200).json().getAsJsonArray("tokens");
    for (int q = 0; q < tokens.size(); q++) {
      JsonObject lens = served.get("/api/runs/%s/lens?q=%d".formatted(id, q)).has(200).json();
      assertFalse(lens.toString().contains("<unused>"), lens.toString());
    }
    served.get("/api/runs/%s/lens?target=1050".formatted(id)).refused(400, "1050");
    served.complete("{'prompt': [1, 1029]}").refused(400, "1029");
    served.complete("{'prompt': [1, 1031]}").refused(400, "1030");
    JsonObject choice =
        served.complete("{'prompt': 'To be', 'max_tokens': 3, 'logprobs': 5}").has(200).choice(0);
    JsonArray top = choice.getAsJsonObject("logprobs").getAsJsonArray("top_logprobs");
    for (JsonElement each : top) {
      assertTrue(each.getAsJsonObject().size() >= 5, "five tokens, none of them padding");
    }
  }
}
