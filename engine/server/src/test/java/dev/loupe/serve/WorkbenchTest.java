package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
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
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the page asks for, against the library asked directly. */
@Timeout(200)
class WorkbenchTest {
  private static final String TEXT = "ROMEO:\nTo be or not to be, to be or not";
  private static final String ABLATED = "'changes': [{'layer': 4, 'head': 0, 'factor': 0}]";

  private static Served served;
  private static Generation lone; // of TEXT and 30 more, seed 7
  private static String id;

  @BeforeAll
  static void start() throws IOException {
    served = Served.start(Served.options());
    lone =
        served
            .loupe()
            .run(
                GenerateRequest.text(TEXT)
                    .tokens(30)
                    .sampling(Sampling.seeded(7))
                    .logprobs(5)
                    .attention(AttentionSelection.all()))
            .getFirst();
    id =
        name(
            events("{'text': '%s', 'tokens': 30, 'seed': 7}".formatted(TEXT.replace("\n", "\\n"))));
  }

  @AfterAll
  static void stop() {
    served.close();
  }

  private static HttpResponse<String> post(String body) {
    return served.send(
        served.to("/api/runs").POST(BodyPublishers.ofString(body.replace('\'', '"'))));
  }

  private static List<JsonObject> events(String body) {
    HttpResponse<String> response = post(body);
    assertEquals(200, response.statusCode(), response.body());
    List<JsonObject> events = new ArrayList<>();
    for (String event : response.body().strip().split("\n\n", -1)) {
      assertTrue(event.startsWith("data: {"), event);
      events.add(JsonParser.parseString(event.substring(6)).getAsJsonObject());
    }
    return events;
  }

  private static String name(List<JsonObject> events) {
    JsonObject done = events.getLast();
    assertEquals("done", done.get("event").getAsString());
    return done.get("id").getAsString();
  }

  private static String kind(JsonObject event) {
    return event.get("event").getAsString();
  }

  private static String ids(Generation run) {
    return run.tokens().stream().map(Token::id).toList().toString();
  }

  /** The text of the run read another way. */
  private static String again(String how) {
    return name(
        events(
            "{'ids': %s, 'prompt_length': %d%s}".formatted(ids(lone), lone.promptLength(), how)));
  }

  private static byte[] bytes(String path) {
    try {
      HttpResponse<byte[]> response =
          served.client().send(served.to("/api/runs/" + path).build(), BodyHandlers.ofByteArray());
      assertEquals(200, response.statusCode(), new String(response.body(), UTF_8));
      assertEquals(
          "private, max-age=31536000, immutable",
          response.headers().firstValue("cache-control").orElse(""));
      return response.body();
    } catch (IOException e) {
      throw new AssertionError(e);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private static float[] floats(String path) {
    byte[] bytes = bytes(path);
    float[] floats = new float[bytes.length / 4];
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(floats);
    return floats;
  }

  private static JsonObject json(String path) {
    return served.get("/api/runs/" + path).has(200).json();
  }

  @Test
  void aRunIsWhatTheLibraryWrites() {
    List<JsonObject> events =
        events("{'text': '%s', 'tokens': 30, 'seed': 7}".formatted(TEXT.replace("\n", "\\n")));
    JsonArray prompt = events.getFirst().getAsJsonArray("tokens");
    assertEquals("prompt", kind(events.getFirst()));
    assertEquals(lone.promptLength(), prompt.size());
    for (int i = 0; i < prompt.size(); i++) {
      JsonObject token = prompt.get(i).getAsJsonObject();
      assertEquals(lone.tokens().get(i).label(), token.get("label").getAsString());
      assertEquals(lone.tokens().get(i).id(), token.get("id").getAsInt());
    }
    List<JsonObject> written = events.stream().filter(e -> kind(e).equals("token")).toList();
    assertEquals(30, written.size());
    for (int i = 0; i < written.size(); i++) {
      Token token = lone.tokens().get(lone.promptLength() + i);
      assertEquals(lone.promptLength() + i, written.get(i).get("index").getAsInt());
      assertEquals(token.id(), written.get(i).get("id").getAsInt());
      assertEquals(token.logprob(), written.get(i).get("logprob").getAsDouble());
    }
    assertEquals("length", events.getLast().get("finish").getAsString());
    assertEquals(id, name(events));
    JsonObject run = json(id);
    assertEquals(lone.promptLength(), run.get("prompt_length").getAsInt());
    assertEquals(3, run.get("n_head").getAsInt());
    assertEquals("causal", run.get("mask").getAsString());
    assertEquals(0, run.getAsJsonArray("changes").size());
    JsonArray tokens = run.getAsJsonArray("tokens");
    assertEquals(lone.tokens().size(), tokens.size());
    for (int i = 0; i < tokens.size(); i++) {
      JsonObject token = tokens.get(i).getAsJsonObject();
      Token expected = lone.tokens().get(i);
      assertEquals(expected.id(), token.get("id").getAsInt());
      assertEquals(expected.label(), token.get("label").getAsString());
      assertEquals(expected.bytes(), token.get("bytes").getAsString());
      assertEquals(expected.generated(), token.get("generated").getAsBoolean());
      if (i == 0) {
        assertEquals(JsonNull.INSTANCE, token.get("logprob"));
        assertEquals(JsonNull.INSTANCE, token.get("rank"));
      } else {
        assertEquals((float) expected.logprob(), token.get("logprob").getAsFloat());
        assertEquals(expected.rank(), token.get("rank").getAsInt());
        JsonArray top = token.getAsJsonArray("top");
        assertEquals(5, top.size());
        for (int k = 0; k < 5; k++) {
          JsonObject candidate = top.get(k).getAsJsonObject();
          assertEquals(expected.top().get(k).id(), candidate.get("id").getAsInt());
          assertEquals(expected.top().get(k).label(), candidate.get("label").getAsString());
        }
      }
    }
  }

  @Test
  void aNameSaysWhatIsRead() {
    assertEquals(id, again(""));
    assertEquals(id, again(", 'changes': [], 'mask': 'causal', 'seed': 3"));
    List<String> names =
        List.of(
            id,
            again(", " + ABLATED),
            again(", 'changes': [{'layer': 4, 'head': 0, 'mean': true}]"),
            again(", 'changes': [{'layer': 4, 'head': 0, 'factor': 0.5}]"),
            again(", 'mask': 'none'"),
            again(", 'n_head': 6"),
            name(events("{'ids': %s}".formatted(ids(lone)))));
    assertEquals(names.size(), names.stream().distinct().count());
    assertNotEquals(name(events("{'ids': [1, 2, 3]}")), name(events("{'ids': [1, 2, 4]}")));
    JsonObject mean = json(names.get(2)).getAsJsonArray("changes").get(0).getAsJsonObject();
    assertEquals("{\"layer\":4,\"head\":0,\"mean\":true}", mean.toString());
    JsonObject cut = json(again(", 'n_head': 6"));
    assertEquals(6, cut.get("n_head").getAsInt());
    JsonObject changed = json(names.get(1)).getAsJsonArray("changes").get(0).getAsJsonObject();
    assertEquals("{\"layer\":4,\"head\":0,\"factor\":0.0}", changed.toString());
  }

  @Test
  void howFarReadingIsIsSaid() {
    List<JsonObject> reading =
        events(
                "{'ids': %s, 'changes': [{'layer': 1, 'head': 1, 'factor': 3}]}"
                    .formatted(ids(lone)))
            .stream()
            .filter(event -> kind(event).equals("reading"))
            .toList();
    assertEquals(6, reading.size());
    for (int i = 0; i < 6; i++) {
      assertEquals(i + 1, reading.get(i).get("done").getAsInt());
      assertEquals(6, reading.get(i).get("layers").getAsInt());
    }
  }

  @Test
  void anEmptyTextBeginsWithTheBeginning() {
    JsonObject run = json(name(events("{'text': '', 'tokens': 3, 'seed': 1}")));
    JsonObject first = run.getAsJsonArray("tokens").get(0).getAsJsonObject();
    assertEquals(1023, first.get("id").getAsInt());
    assertTrue(first.get("special").getAsBoolean());
    assertEquals(4, run.getAsJsonArray("tokens").size());
  }

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

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          /rows?q=-1        | q is not a whole number
          /rows?q=1000      | q is not a whole number
          /rows?q=x         | q is not a whole number
          /rows?l=6         | l is not a whole number from 0 to 5
          /rows?h=3         | h is not a whole number from 0 to 2
          /tile?by=0        | by is not
          /tile?r=9         | r is not a range
          /tile?r=9-3       | nothing of r
          /tile?c=900-901   | nothing of c
          /tile?minus=../.. | minus is not the name
          /thumbs?layers=2-6| layers 0 to 5
          /thumbs?layers=3-1| layers 0 to 5
          /thumbs?side=0    | side is not
          /thumbs?side=999  | side is not
          /compare          | with is missing
          /compare?with=A   | with is not the name
          /export           | as is missing
          /export?as=exe    | npz, json or csv
          /export?as=npz&h=9| heads
          /lens?q=999       | no token 999
          /lens?target=99999| target is not
          """)
  void whatCantBeShownIsSaid(String path, String words) {
    served.get("/api/runs/" + id + path.strip()).refused(400, words.strip());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          {'text': 'a', 'ids': [1]}                           | not both
          {'ids': []}                                         | ids
          {'ids': [5000]}                                     | 0 to 1023
          {'text': ['a', 'b']}                                | one text
          {'text': 'a', 'tokens': 256}                        | context holds 256
          {'text': 'a', 'tokens': -1}                         | tokens
          {'text': 'a', 'tokens': 3, 'mask': 'none'}          | only read
          {'text': 'a', 'mask': 'some'}                       | causal or none
          {'text': 'a', 'prompt_length': 0}                   | prompt_length
          {'ids': [1, 2], 'prompt_length': 1, 'tokens': 3}    | prompt_length
          {'text': 'a', 'changes': {}}                        | changes
          {'text': 'a', 'changes': [1]}                       | changes
          {'text': 'a', 'changes': [{'layer': 'x'}]}          | layer
          {'text': 'a', 'changes': [{'layer': 9, 'head': 0}]} | no head 9.0
          {'text': 'a', 'changes': [{'layer': 1}, {'layer': 1}]} | changed twice
          {'text': 'a', 'n_head': 5}                          | 5 heads
          {'text': 'a', 'temperature': -1}                    | temperature
          {'text'                                             | JSON
          """)
  void whatCantBeRunIsSaid(String body, String words) {
    HttpResponse<String> response = post(body.strip());
    assertEquals(400, response.statusCode(), response.body());
    assertTrue(response.body().contains(words.strip()), response.body());
  }

  @Test
  void whatIsNotKeptIsGone() {
    for (String path :
        List.of("", "/rows", "/tile", "/thumbs", "/stats", "/lens", "/export?as=csv")) {
      assertEquals(
          "gone",
          served
              .get("/api/runs/0123456789abcdef" + path)
              .refused(410, "again")
              .get("code")
              .getAsString());
    }
    served.get("/api/runs/%s/compare?with=0123".formatted(id)).refused(410, "again");
    for (String path :
        List.of("/api", "/api/", "/api/runs/", "/api/runs/XYZ", "/api/runs/12/files")) {
      served.get(path).refused(404, "nothing is served at this path");
    }
    assertEquals(
        "POST", served.get("/api/runs").response().headers().firstValue("allow").orElse(""));
  }

  @Test
  void whatThePageBeginsWith() {
    JsonObject info = served.get("/api/info").has(200).json();
    assertEquals("shakespeare", info.get("model").getAsString());
    assertEquals(256, info.get("n_ctx").getAsInt());
    assertEquals(1023, info.get("bos").getAsInt());
    JsonArray light = info.getAsJsonObject("palettes").getAsJsonArray("light");
    assertEquals("#f8fafe", light.get(0).getAsJsonArray().get(0).getAsString());
    assertEquals("#8f4802", light.get(1).getAsJsonArray().get(8).getAsString());
    JsonObject example = json(info.get("example").getAsString());
    assertTrue(example.get("prompt_length").getAsInt() < example.getAsJsonArray("tokens").size());
    assertEquals(info, served.get("/api/info").json());
  }

  @Test
  void thePageIsWholeAndFetchesNothingElse() {
    HttpResponse<String> index = served.send(served.to("/"));
    assertEquals(200, index.statusCode());
    assertEquals(
        "text/html; charset=utf-8", index.headers().firstValue("content-type").orElseThrow());
    String policy = index.headers().firstValue("content-security-policy").orElseThrow();
    assertTrue(policy.startsWith("default-src 'self'; img-src 'self' blob:;"), policy);
    List<String> files = new ArrayList<>(List.of("/"));
    for (int i = 0; i < files.size(); i++) {
      HttpResponse<String> file = served.send(served.to(files.get(i)));
      assertEquals(200, file.statusCode(), files.get(i));
      assertFalse(
          file.body().contains("https://") && !files.get(i).contains("lit-html"), files.get(i));
      Matcher reference =
          Pattern.compile("(?:from|import|src=|href=)\\s*[\"']([^\"']+)[\"']").matcher(file.body());
      while (reference.find()) {
        String path = reference.group(1).replaceFirst("^\\./", "/page/");
        if (path.startsWith("/") && !files.contains(path)) {
          files.add(path);
        }
      }
    }
    assertTrue(files.contains("/page/lit-html.js") && files.contains("/page/workbench.css"));
    for (String path :
        List.of("/page/", "/page/../Page.class", "/page/Page.class", "/index.html")) {
      served.get(path).refused(404, "nothing is served at this path");
    }
  }

  @Test
  void aClientThatGoesAwayEndsItsRun() throws Exception {
    String body = "{\"text\": \"a\", \"tokens\": 255, \"seed\": 1}";
    for (int i = 0; i < 5; i++) {
      try (Socket socket =
          served.socket(
              "POST /api/runs HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s"
                  .formatted(body.length(), body))) {
        assertTrue(socket.getInputStream().read() >= 0);
      }
    }
    served.awaitIdle();
    assertEquals(id, again(""));
  }

  @Test
  void withAKeyOnlyThePageIsOpen() throws IOException {
    ServerOptions options =
        new ServerOptions(
            "127.0.0.1", 0, Optional.of("secret"), 4, 2, Duration.ofSeconds(30), Served.MODEL);
    try (Served locked = Served.start(options)) {
      assertEquals(200, locked.send(locked.to("/")).statusCode());
      assertEquals(200, locked.send(locked.to("/page/state.js")).statusCode());
      for (String path : List.of("/api/info", "/api/heads", "/api/runs/12", "/api/runs/12/rows")) {
        locked.get(path).refused(401, "key");
      }
      assertEquals(
          401, locked.send(locked.to("/api/runs").POST(BodyPublishers.noBody())).statusCode());
      assertEquals(
          200,
          locked
              .send(locked.to("/api/info").header("authorization", "Bearer secret"))
              .statusCode());
    }
  }
}
