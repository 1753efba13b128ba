package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.generate.Token;
import java.io.IOException;
import java.net.Socket;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The page's runs: what is kept of them and for how long, and what is refused. */
@Timeout(200)
class WorkbenchTest extends WorkbenchFixture {
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
          /rows?of=all      | weights, values, rollout
          /tile?by=0        | by is not
          /tile?of=norms    | weights, values, rollout
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
          /export?as=exe    | npz, json, csv or html
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
