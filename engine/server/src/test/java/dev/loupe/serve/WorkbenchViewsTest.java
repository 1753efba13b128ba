package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.LensReport;
import dev.loupe.export.TemporaryFile;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.model.Interventions;
import dev.loupe.ops.Mask;
import java.io.InputStream;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Arrays;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the views of the page show of a run, against the library asked directly. */
@Timeout(200)
class WorkbenchViewsTest extends WorkbenchFixture {
  @Test
  void rowsAreExact() {
    int last = lone.tokens().size() - 1;
    for (int query : new int[] {0, 5, last}) {
      float[] all = floats("%s/rows?q=%d".formatted(id, query));
      int at = 0;
      for (int layer = 0; layer < 6; layer++) {
        for (int head = 0; head < 3; head++) {
          for (float weight : lone.attention().row(layer, head, query)) {
            assertEquals(weight, all[at++]);
          }
        }
      }
      assertEquals(all.length, at);
    }
    assertArrayEquals(lone.attention().row(5, 1, 9), floats("%s/rows?q=9&l=5&h=1".formatted(id)));
    assertEquals(3 * 10, floats("%s/rows?q=9&l=5".formatted(id)).length);
    assertEquals(6 * 10, floats("%s/rows?q=9&h=2".formatted(id)).length);
  }

  @Test
  void derivedMapsAreTheLibrarysAndTilesShowTheirRows() {
    for (String of : new String[] {"values", "rollout"}) {
      float[] row = floats("%s/rows?q=9&l=5&h=1&of=%s".formatted(id, of));
      assertEquals(10, row.length);
      double sum = 0;
      byte[] tile = bytes("%s/tile?l=5&h=1&r=9-10&c=0-10&of=%s".formatted(id, of));
      for (int key = 0; key < 10; key++) {
        sum += row[key];
        assertEquals(Math.round(255 * Math.sqrt(row[key])), tile[key] & 255, of);
      }
      assertEquals(1, sum, 1e-5, of);
      assertFalse(Arrays.equals(lone.attention().row(5, 1, 9), row), of);
    }
    assertArrayEquals(
        floats("%s/rows?q=9&l=5&h=1&of=values".formatted(id)),
        Arrays.copyOfRange(floats("%s/rows?q=9&l=5&of=values".formatted(id)), 10, 20));
    assertEquals(6 * 10, floats("%s/rows?q=9&of=rollout".formatted(id)).length); // one map a layer
    assertArrayEquals(
        lone.attention().row(5, 1, 9), floats("%s/rows?q=9&l=5&h=1&of=weights".formatted(id)));
  }

  /** The largest weight of the rows and keys of a pixel, by looking at each. */
  private static double largest(
      AttentionMaps maps, int layer, int head, int fromRow, int toRow, int fromKey, int toKey) {
    double largest = 0;
    for (int query = fromRow; query < Math.min(toRow, maps.tokens()); query++) {
      float[] row = maps.row(layer, head, query);
      for (int key = fromKey; key < Math.min(toKey, row.length); key++) {
        largest = Math.max(largest, row[key]);
      }
    }
    return largest;
  }

  @ParameterizedTest
  @CsvSource({"0,1000,0,1000,1", "3,30,2,20,1", "0,1000,0,1000,4", "5,43,1,29,3", "7,8,0,8,100"})
  void tilesHoldTheLargest(int r0, int r1, int c0, int c1, int by) {
    int tokens = lone.tokens().size();
    int step = Math.min(by, tokens);
    byte[] tile =
        bytes("%s/tile?l=5&h=1&r=%d-%d&c=%d-%d&by=%d".formatted(id, r0, r1, c0, c1, step));
    int rows = Math.ceilDiv(Math.min(r1, tokens) - r0, step);
    int columns = Math.ceilDiv(Math.min(c1, tokens) - c0, step);
    assertEquals(rows * columns, tile.length);
    for (int r = 0; r < rows; r++) {
      for (int c = 0; c < columns; c++) {
        int row = r0 + r * step;
        int key = c0 + c * step;
        double p =
            largest(
                lone.attention(),
                5,
                1,
                row,
                Math.min(row + step, r1),
                key,
                Math.min(key + step, c1));
        assertEquals(Math.round(255 * Math.sqrt(p)), tile[r * columns + c] & 255);
      }
    }
  }

  @Test
  void thumbnailsHoldTheLargest() {
    int tokens = lone.tokens().size();
    for (int side : new int[] {tokens, 16, 7}) {
      byte[] thumbs = bytes("%s/thumbs?layers=3-5&side=%d".formatted(id, side));
      assertEquals(3 * 3 * side * side, thumbs.length);
      int at = 0;
      for (int layer = 3; layer < 6; layer++) {
        for (int head = 0; head < 3; head++) {
          for (int r = 0; r < side; r++) {
            for (int c = 0; c < side; c++) {
              double p =
                  largest(
                      lone.attention(),
                      layer,
                      head,
                      r * tokens / side,
                      (r + 1) * tokens / side,
                      c * tokens / side,
                      (c + 1) * tokens / side);
              assertEquals(Math.round(255 * Math.sqrt(p)), thumbs[at++] & 255);
            }
          }
        }
      }
    }
    assertEquals(18 * tokens * tokens, bytes(id + "/thumbs?side=256").length);
  }

  @Test
  void differencesKeepTheirSign() {
    String changed = again(", " + ABLATED);
    Generation ablated =
        served
            .loupe()
            .run(
                GenerateRequest.ids(lone.tokens().stream().mapToInt(Token::id).toArray())
                    .tokens(0)
                    .interventions(Interventions.NONE.scale(4, 0, 0))
                    .attention(AttentionSelection.all()))
            .getFirst();
    int tokens = lone.tokens().size();
    for (int by : new int[] {1, 5}) {
      byte[] tile = bytes("%s/tile?l=5&h=2&by=%d&minus=%s".formatted(changed, by, id));
      int side = Math.ceilDiv(tokens, by);
      assertEquals(side * side, tile.length);
      boolean less = false;
      boolean more = false;
      for (int r = 0; r < side; r++) {
        for (int c = 0; c < side; c++) {
          double largest = 0;
          for (int q = r * by; q < Math.min((r + 1) * by, tokens); q++) {
            float[] before = lone.attention().row(5, 2, q);
            float[] after = ablated.attention().row(5, 2, q);
            for (int k = c * by; k < Math.min((c + 1) * by, q + 1); k++) {
              double d = (double) after[k] - before[k];
              largest = Math.abs(d) > Math.abs(largest) ? d : largest;
            }
          }
          double expected = Math.signum(largest) * Math.rint(127 * Math.sqrt(Math.abs(largest)));
          assertEquals(expected, tile[r * side + c], 1); // f32 and double round apart
          less |= tile[r * side + c] < -5;
          more |= tile[r * side + c] > 5;
        }
      }
      assertTrue(less && more);
    }
    assertEquals(0, bytes("%s/tile?l=5&h=2&minus=%s".formatted(id, id))[tokens]);
  }

  @Test
  void statisticsAreTheLibrarys() {
    HeadStatistics expected =
        served
            .loupe()
            .run(
                GenerateRequest.ids(lone.tokens().stream().mapToInt(Token::id).toArray())
                    .tokens(0)
                    .attention(AttentionSelection.all().headStatisticsOnly()))
            .getFirst()
            .headStatistics()
            .orElseThrow();
    JsonObject scores = json(id + "/stats").getAsJsonObject("scores");
    assertEquals(8, scores.size());
    for (HeadScore score : HeadScore.values()) {
      if (!score.needsValueNorms()) {
        for (int layer = 0; layer < 6; layer++) {
          for (int head = 0; head < 3; head++) {
            JsonElement value =
                scores.getAsJsonArray(score.key()).get(layer).getAsJsonArray().get(head);
            assertEquals((float) expected.score(score, layer, head), value.getAsFloat());
          }
        }
      }
    }
  }

  @Test
  void headsAreThoseOfTheSurvey() {
    HeadSurvey survey = served.loupe().heads(Prompt.text(""));
    JsonObject json = served.get("/api/heads").has(200).json();
    assertEquals(50, json.getAsJsonObject("repeated").get("length").getAsInt());
    assertEquals(101, json.getAsJsonObject("repeated").getAsJsonArray("ids").size());
    JsonArray heads = json.getAsJsonArray("heads");
    assertEquals(18, heads.size());
    for (JsonElement each : heads) {
      JsonObject head = each.getAsJsonObject();
      int l = head.get("layer").getAsInt();
      int h = head.get("head").getAsInt();
      assertEquals(
          survey.role(l, h).map(HeadRole::key).orElse("none"),
          head.get("role").isJsonNull() ? "none" : head.get("role").getAsString());
      assertEquals(
          (float) survey.onRepeated().score(HeadScore.INDUCTION, l, h),
          head.getAsJsonObject("scores").get("induction").getAsFloat());
    }
  }

  @Test
  void comparisonsAreTheLibrarys() {
    Comparison expected =
        served
            .loupe()
            .compare(
                ReadRequest.ids(lone.tokens().stream().mapToInt(Token::id).toArray())
                    .interventions(Interventions.NONE.scale(4, 0, 0)));
    JsonObject json = json("%s/compare?with=%s".formatted(again(", " + ABLATED), id));
    JsonArray divergences = json.getAsJsonArray("divergences");
    assertEquals(expected.divergences().size(), divergences.size());
    for (int i = 0; i < divergences.size(); i++) {
      assertEquals(expected.divergences().get(i).floatValue(), divergences.get(i).getAsFloat());
    }
    assertEquals(
        expected.maps().get(5).get(2).floatValue(),
        json.getAsJsonArray("variation").get(5).getAsJsonArray().get(2).getAsFloat());
    assertEquals(
        JsonNull.INSTANCE,
        json("%s/compare?with=%s".formatted(again(", 'n_head': 6"), id)).get("variation"));
  }

  @Test
  void withoutTheMaskRowsAreWhole() {
    String full = again(", 'mask': 'none'");
    assertEquals(lone.tokens().size(), floats(full + "/rows?q=3&l=0&h=0").length);
    try (var cache =
        served
            .loupe()
            .cache(
                ReadRequest.ids(lone.tokens().stream().mapToInt(Token::id).toArray())
                    .mask(Mask.FULL))) {
      assertArrayEquals(cache.row(5, 0, 3), floats(full + "/rows?q=3&l=5&h=0"));
    }
    served.get("/api/runs/%s/stats".formatted(full)).refused(400, "causal mask");
    served.get("/api/runs/%s/tile?of=rollout".formatted(full)).refused(400, "causal mask");
    assertEquals(lone.tokens().size(), floats(full + "/rows?q=3&l=0&h=0&of=values").length);
    String cut = again(", \"n_head\": 6");
    served.get("/api/runs/%s/rows?of=values".formatted(cut)).refused(400, "own 3 heads");
    served.get("/api/runs/%s/export?as=csv".formatted(full)).refused(400, "causal mask");
    served.get("/api/runs/%s/lens".formatted(full)).refused(400, "as it is");
  }

  @Test
  void theLensIsTheLibrarys() {
    int[] ids = lone.tokens().stream().mapToInt(Token::id).toArray();
    assertEquals(
        JsonParser.parseString(LensReport.json(served.loupe().lens(Prompt.ids(ids), 12, -1, 5))),
        json(id + "/lens?q=12"));
    assertEquals(
        JsonParser.parseString(LensReport.json(served.loupe().lens(Prompt.ids(ids), 12, 44, 2))),
        json(id + "/lens?q=12&target=44&top=2"));
    served.get("/api/runs/%s/lens".formatted(again(", " + ABLATED))).refused(400, "as it is");
  }

  @ParameterizedTest
  @ValueSource(strings = {"npz", "json", "csv"})
  void filesAreTheLibrarys(String as) throws Exception {
    Generation read =
        served
            .loupe()
            .run(
                GenerateRequest.of(
                        Prompt.ids(lone.tokens().stream().mapToInt(Token::id).toArray())
                            .length(lone.promptLength()))
                    .tokens(0)
                    .logprobs(0)
                    .attention(AttentionSelection.all().layers(5).heads(1)))
            .getFirst();
    HttpResponse<byte[]> response =
        served
            .client()
            .send(
                served.to("/api/runs/%s/export?as=%s&l=5&h=1".formatted(id, as)).build(),
                BodyHandlers.ofByteArray());
    assertEquals(200, response.statusCode());
    assertEquals(
        "attachment; filename=\"loupe-shakespeare-5.1.%s\"".formatted(as),
        response.headers().firstValue("content-disposition").orElseThrow());
    byte[] expected;
    try (TemporaryFile file = AttentionFormat.valueOf(as.toUpperCase(Locale.ROOT)).temporary(read);
        InputStream content = file.open()) {
      expected = content.readAllBytes();
    }
    if (as.equals("json")) { // but for how long it took
      JsonObject a = JsonParser.parseString(new String(expected, UTF_8)).getAsJsonObject();
      JsonObject b = JsonParser.parseString(new String(response.body(), UTF_8)).getAsJsonObject();
      a.remove("timing");
      b.remove("timing");
      assertEquals(a, b);
    } else {
      assertArrayEquals(expected, response.body());
    }
  }
}
