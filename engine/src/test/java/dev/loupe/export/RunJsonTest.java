package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonReader;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.io.StringReader;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class RunJsonTest {
  @TempDir Path folder;

  private static JsonObject parse(String text) {
    assertTrue(text.endsWith("}\n"), "one line");
    assertEquals(text.length() - 1, text.indexOf('\n'));
    assertFalse(text.contains("NaN") || text.contains("Infinity"), text);
    JsonReader reader = new JsonReader(new StringReader(text));
    reader.setStrictness(Strictness.STRICT);
    return JsonParser.parseReader(reader).getAsJsonObject();
  }

  private static JsonObject printed(Generation run, Optional<String> file) throws IOException {
    StringWriter out = new StringWriter();
    RunJson.write(run, file, out);
    return parse(out.toString());
  }

  @Test
  void theObjectHasTheFieldsOfItsSchemaInOrder() throws IOException {
    Generation run = Runs.random(new int[] {1, 3}, new int[] {2}, 2, true, "·a", "</script>", "€");
    JsonObject json = printed(run, Optional.of("out/run.npz"));
    assertEquals(
        List.of(
            "schema", "text", "prompt_len", "model", "generation", "tokens", "attention", "timing"),
        List.copyOf(json.keySet()));
    assertEquals("loupe/1", json.get("schema").getAsString());
    assertEquals("generated \"text\"\n", json.get("text").getAsString());
    assertEquals(
        "{\"source\":\"models/demo\",\"sha256\":null,\"n_layer\":6,\"n_head\":3,\"n_embd\":192,"
            + "\"n_ctx\":256,\"activation\":\"gelu_new\",\"dtype\":\"f32\"}",
        json.get("model").toString());
    assertEquals(
        "{\"strategy\":\"sample\",\"sampling\":{\"temperature\":1.0,\"top_k\":0,\"top_p\":1.0,"
            + "\"min_p\":0.0,\"repetition_penalty\":1.0,"
            + "\"presence_penalty\":0.0,\"frequency_penalty\":0.0},\"seed\":7,\"sample\":0,"
            + "\"backend\":\"cpu\",\"device\":\"cpu, 1 thread\",\"finish_reason\":\"length\","
            + "\"cropped\":0}",
        json.get("generation").toString());
    assertEquals(
        "{\"layers\":[1,3],\"heads\":[2],\"shape\":[2,1,3,3],"
            + "\"axes\":[\"layer\",\"head\",\"query\",\"key\"],\"file\":\"out/run.npz\"}",
        json.get("attention").toString());
    assertEquals(
        "{\"load_ms\":41.5,\"prefill_ms\":12.5,\"prefill_tokens\":2,\"decode_ms\":30.0,"
            + "\"decode_tokens\":1}",
        json.get("timing").toString());
  }

  @Test
  void tokensCarryNullWhereThereIsNoLogprob() throws IOException {
    JsonArray tokens =
        printed(
                Runs.random(new int[] {0}, new int[] {0}, 1, false, "·a", "\"\u2028"),
                Optional.empty())
            .getAsJsonArray("tokens");
    assertEquals(
        "{\"id\":100,\"raw\":\"Ġa\",\"label\":\"·a\",\"bytes_hex\":\"2061\",\"char_span\":[0,1],"
            + "\"special\":false,\"generated\":false,\"logprob\":null,\"rank\":null,\"top\":[]}",
        tokens.get(0).toString());
    JsonObject second = tokens.get(1).getAsJsonObject();
    assertEquals("\"\u2028", second.get("label").getAsString());
    assertEquals(-0.25, second.get("logprob").getAsDouble());
    assertEquals(1, second.get("rank").getAsInt());
    assertEquals("[{\"id\":7,\"logprob\":-0.5}]", second.get("top").toString());
  }

  @Test
  void whatIsNotKnownIsNull() throws IOException {
    Generation run = Runs.random(new int[] {0}, new int[] {0}, 1, false, "a");
    JsonObject json = printed(run, Optional.empty());
    assertTrue(json.getAsJsonObject("attention").get("file").isJsonNull());
    assertTrue(json.getAsJsonObject("model").get("sha256").isJsonNull());
    Generation bare =
        new Generation(
            run.model(),
            run.sampling(),
            0,
            "",
            1,
            run.tokens(),
            Generation.Finish.EOS,
            0,
            Optional.empty(),
            Optional.empty(),
            Optional.empty(),
            Optional.empty(),
            Optional.empty(),
            run.timing());
    JsonObject none = printed(bare, Optional.empty());
    assertTrue(none.get("attention").isJsonNull());
    assertEquals("eos", none.getAsJsonObject("generation").get("finish_reason").getAsString());
  }

  @Test
  void theFileHoldsTheVeryFloats() throws IOException {
    Generation run = Runs.random(new int[] {1, 3}, new int[] {0, 2}, 2, true, Runs.labels(7));
    run.attention().put(3, 2, 1, new float[] {Float.NaN, 1e-40f});
    Path file = folder.resolve("run.json");
    AttentionFormat.JSON.write(run, file);
    JsonObject attention = parse(Files.readString(file)).getAsJsonObject("attention");
    assertRows(attention.getAsJsonArray("weights"), run.attention());
    assertRows(attention.getAsJsonArray("scores"), run.scores().orElseThrow());
    JsonArray row =
        attention
            .getAsJsonArray("weights")
            .get(1)
            .getAsJsonArray()
            .get(1)
            .getAsJsonArray()
            .get(1)
            .getAsJsonArray();
    assertTrue(row.get(0).isJsonNull());
  }

  private static void assertRows(JsonArray json, AttentionMaps maps) {
    assertEquals(maps.layers().length, json.size());
    for (int l = 0; l < json.size(); l++) {
      JsonArray heads = json.get(l).getAsJsonArray();
      assertEquals(maps.heads().length, heads.size());
      for (int h = 0; h < heads.size(); h++) {
        JsonArray queries = heads.get(h).getAsJsonArray();
        assertEquals(maps.tokens(), queries.size());
        for (int query = 0; query < queries.size(); query++) {
          JsonArray keys = queries.get(query).getAsJsonArray();
          assertEquals(query + 1, keys.size());
          float[] row = maps.row(maps.layers()[l], maps.heads()[h], query);
          for (int key = 0; key <= query; key++) {
            JsonElement weight = keys.get(key);
            assertEquals(row[key], weight.isJsonNull() ? Float.NaN : weight.getAsFloat());
          }
        }
      }
    }
  }
}
