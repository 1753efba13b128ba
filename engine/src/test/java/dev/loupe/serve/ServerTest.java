package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.Generation;
import dev.loupe.Request;
import dev.loupe.Token;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the server answers, request by request. */
@Timeout(200)
class ServerTest {
  private static Served served;

  @BeforeAll
  static void start() throws IOException {
    served = Served.start(Served.options());
  }

  @AfterAll
  static void stop() {
    served.close();
  }

  private static Generation lone(Request request) {
    return served.loupe().run(request).getFirst();
  }

  @Test
  void namesItsModel() {
    JsonObject list = served.get("/v1/models").has(200).json();
    assertEquals("list", list.get("object").getAsString());
    JsonObject model = list.getAsJsonArray("data").get(0).getAsJsonObject();
    assertEquals(1, list.getAsJsonArray("data").size());
    assertEquals(Set.of("id", "object", "created", "owned_by"), model.keySet());
    assertEquals(Served.MODEL, model.get("id").getAsString());
    assertEquals(model, served.get("/v1/models/shakespeare").has(200).json());
    assertEquals(
        "model_not_found",
        served.get("/v1/models/gpt-4").refused(404, "shakespeare").get("code").getAsString());
  }

  @Test
  void isHealthy() {
    JsonObject health = served.get("/healthz?deep=1").has(200).json();
    assertEquals("ok", health.get("status").getAsString());
    assertEquals("shakespeare", health.get("model").getAsString());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "/v1",
        "/v1/completions/",
        "/v1/chat/completions",
        "/../../etc/passwd",
        "/v1/models/../../etc/passwd",
        "/%2e%2e/etc/passwd",
        "//healthz",
        "/HEALTHZ"
      })
  void hasNothingElse(String path) {
    served.get(path).refused(404);
  }

  @Test
  void saysWhichMethodAPathTakes() {
    Served.Answer answer = served.get("/v1/completions");
    answer.refused(405, "/v1/completions", "POST");
    assertEquals("POST", answer.response().headers().firstValue("allow").orElse(""));
    served.ask(served.to("/v1/models").DELETE()).refused(405, "GET");
    served.ask(served.to("/metrics").POST(BodyPublishers.ofString("{}"))).refused(405, "GET");
  }

  /** A body; then words of the message. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        " => empty",
        "{ => body",
        "[] => no object",
        "'x' => no object",
        "null => no object",
        "{'prompt': 'x'} {} => body",
        "{'prompt': 'x',} => body",
        "{prompt: 'x'} => body",
        "{'prompt': 'x'} // hello => body",
        "{'prompt': NaN} => body",
        "{'prompt': 5} => prompt is 5; array of strings",
        "{'prompt': {}} => prompt is {}",
        "{'prompt': []} => prompt is []",
        "{'prompt': [[]]} => prompt without token ids",
        "{'prompt': [1, 'x']} => prompt is \"x\"; 0 to 1023",
        "{'prompt': ['x', 1]} => prompt is [\"x\",1]",
        "{'prompt': [1024]} => prompt is 1024; 0 to 1023",
        "{'prompt': [-1]} => prompt is -1",
        "{'prompt': [1.5]} => prompt is 1.5",
        "{'prompt': [1e999999999]} => prompt is 1e999999999",
        "{'max_tokens': -1} => max_tokens is -1",
        "{'max_tokens': 1.5} => max_tokens is 1.5; whole number",
        "{'max_tokens': '5'} => max_tokens is \"5\"",
        "{'max_tokens': 256} => 1 tokens; max_tokens is 256; context holds 256",
        "{'n': 0} => n is 0; 1 to 128",
        "{'n': 129} => n is 129",
        "{'n': 65, 'prompt': ['a', 'b']} => 2 prompts; n = 65; 128",
        "{'best_of': 2} => best_of is 2 and n 1",
        "{'n': 3, 'best_of': 2} => best_of is 2 and n 3",
        "{'temperature': -1} => temperature -1.0",
        "{'temperature': 1e999} => temperature Infinity",
        "{'temperature': 'hot'} => temperature is \"hot\", not a number",
        "{'top_p': 1.1} => top-p 1.1",
        "{'top_k': -2} => top_k is -2",
        "{'min_p': 2} => min-p 2",
        "{'repetition_penalty': 0} => repetition penalty 0",
        "{'presence_penalty': 2.5} => presence penalty 2.5",
        "{'frequency_penalty': -3} => frequency penalty -3",
        "{'suffix': 'x'} => suffix is not supported",
        "{'logit_bias': {'5': 1}} => logit_bias is not supported",
        "{'logit_bias': 5} => logit_bias is not supported",
        "{'stop': ''} => stop is",
        "{'stop': 5} => stop is 5",
        "{'stop': ['a', 5]} => stop is",
        "{'stop': '\\ud800'} => surrogate",
        "{'stop': ['a', 'b', 'c', 'd', 'e']} => 5 stop strings, more than 4",
        "{'seed': 0.5} => seed is 0.5",
        "{'seed': 9223372036854775808} => seed is 9223372036854775808",
        "{'logprobs': 6} => logprobs is 6; 0 to 5",
        "{'logprobs': true} => logprobs is true",
        "{'echo': 1} => echo is 1, not true or false",
        "{'stream': 'yes'} => stream is \"yes\"",
        "{'stream_options': 5} => stream_options is 5",
        "{'stream_options': {'include_usage': 1}} => include_usage is 1"
      })
  void refuses(String line) {
    String[] sides = line.split(" => ", -1);
    served.complete(sides[0]).refused(400, sides[1].split("; ", -1));
  }

  @Test
  void refusesWhatIsNoText() {
    byte[] latin = {'{', '"', (byte) 0xe9, '"', ':', '1', '}'};
    served
        .ask(served.to("/v1/completions").POST(BodyPublishers.ofByteArray(latin)))
        .refused(400, "not UTF-8");
    served.complete("[".repeat(100_000)).refused(400);
    served.complete("{'a':".repeat(100_000)).refused(400);
    assertEquals(
        "prompt", served.complete("{'prompt': 5}").refused(400).get("param").getAsString());
    served.complete("{'model': 'gpt-4'}").refused(404, "gpt-4", "shakespeare");
    served.complete("{'prompt': '%s'}".formatted("a b".repeat(300_000))).refused(400, "context");
  }

  @Test
  void passesOverWhatChangesNothing() {
    String text = served.complete("{'prompt': 'ROMEO:', 'seed': 3}").has(200).text(0);
    String more =
        "{'prompt': 'ROMEO:', 'seed': 3, 'user': 'me', 'colour': {'a': [1]}, 'best_of': 1,"
            + "'suffix': null, 'logit_bias': {}, 'presence_penalty': 0, 'frequency_penalty': 0.0,"
            + "'stop': null, 'model': 'shakespeare', 'n': 1, 'max_tokens': 16, 'top_k': -1,"
            + "'stream': false, 'echo': null, 'logprobs': null, 'top_p': 1.0, 'temperature': 1}";
    assertEquals(text, served.complete(more).has(200).text(0));
  }

  @Test
  void completesAsALoneRunDoes() {
    Served.Answer answer =
        served
            .complete(
                "{'prompt': 'ROMEO:', 'max_tokens': 30, 'seed': 7, 'temperature': 0.8, 'top_k': 40, 'top_p': 0.95, 'min_p': 0.01, 'repetition_penalty': 1.1}")
            .has(200);
    Sampling sampling = new Sampling(0.8, 40, 0.95, 0.01, 1.1, 7);
    Generation run = lone(Request.text("ROMEO:").tokens(30).sampling(sampling));
    assertEquals(run.text(), answer.text(0));
    JsonObject json = answer.json();
    assertTrue(json.get("id").getAsString().matches("cmpl-[0-9a-f]{32}"), json.toString());
    assertEquals("text_completion", json.get("object").getAsString());
    assertEquals("shakespeare", json.get("model").getAsString());
    assertEquals(JsonNull.INSTANCE, json.get("system_fingerprint"));
    long age = System.currentTimeMillis() / 1000 - json.get("created").getAsLong();
    assertTrue(age >= 0 && age < 60, age + " s ago");
    assertEquals("length", answer.choice(0).get("finish_reason").getAsString());
    assertEquals(JsonNull.INSTANCE, answer.choice(0).get("logprobs"));
    usage(json, run.promptLength(), 30);
  }

  private static void usage(JsonObject json, int prompt, int completion) {
    JsonObject usage = json.getAsJsonObject("usage");
    assertEquals(prompt, usage.get("prompt_tokens").getAsInt());
    assertEquals(completion, usage.get("completion_tokens").getAsInt());
    assertEquals(prompt + completion, usage.get("total_tokens").getAsInt());
  }

  @Test
  void hasOpenAisDefaults() {
    Served.Answer answer = served.complete("{'seed': 5}").has(200);
    assertEquals(
        lone(Request.text("").tokens(16).sampling(Sampling.seeded(5))).text(), answer.text(0));
    usage(answer.json(), 1, 16);
    assertNotEquals(
        served.complete("{'max_tokens': 60}").text(0),
        served.complete("{'max_tokens': 60}").text(0));
    Served.Answer greedy = served.complete("{'prompt': 'ROMEO:', 'temperature': 0}");
    assertEquals(
        lone(Request.text("ROMEO:").tokens(16).sampling(Sampling.greedy())).text(), greedy.text(0));
  }

  @Test
  void takesPromptsInFourForms() {
    int[] romeo = served.loupe().tokenizer().encode("ROMEO:", false);
    JsonArray ids = new JsonArray();
    for (int id : romeo) {
      ids.add(id);
    }
    String rest = "'seed': 2, 'max_tokens': 12, 'n': 2";
    Served.Answer one = served.complete("{'prompt': 'ROMEO:', %s}".formatted(rest)).has(200);
    Served.Answer byIds = served.complete("{'prompt': %s, %s}".formatted(ids, rest)).has(200);
    Served.Answer two =
        served.complete("{'prompt': ['JULIET:', 'ROMEO:'], %s}".formatted(rest)).has(200);
    Served.Answer twoByIds =
        served.complete("{'prompt': [[1, 2], %s], %s}".formatted(ids, rest)).has(200);
    List<Generation> runs =
        served
            .loupe()
            .run(Request.text("ROMEO:").tokens(12).samples(2).sampling(Sampling.seeded(2)));
    for (int sample = 0; sample < 2; sample++) {
      assertEquals(runs.get(sample).text(), one.text(sample));
      assertEquals(runs.get(sample).text(), byIds.text(sample));
      assertEquals(runs.get(sample).text(), two.text(2 + sample));
      assertEquals(runs.get(sample).text(), twoByIds.text(2 + sample));
      assertEquals(2 + sample, two.choice(2 + sample).get("index").getAsInt());
    }
    assertNotEquals(one.text(0), one.text(1));
    assertEquals(4, two.json().getAsJsonArray("choices").size());
    usage(one.json(), romeo.length, 24);
    int juliet = served.loupe().tokenizer().encode("JULIET:", false).length;
    usage(two.json(), juliet + romeo.length, 48);
  }

  @Test
  void stopsBeforeAString() {
    Generation run = lone(Request.text("ROMEO:").tokens(60).sampling(Sampling.greedy()));
    String stop = run.text().substring(11, 14);
    String before = run.text().substring(0, run.text().indexOf(stop));
    String body =
        "{'prompt': 'ROMEO:', 'max_tokens': 60, 'temperature': 0, 'logprobs': 0, 'stop': ";
    for (String stops : List.of("'" + stop + "'", "['never seen', '" + stop + "']")) {
      Served.Answer answer = served.complete(body + stops.replace("\n", "\\n") + "}").has(200);
      assertEquals(before, answer.text(0));
      assertEquals("stop", answer.choice(0).get("finish_reason").getAsString());
      StringBuilder spelled = new StringBuilder();
      answer
          .choice(0)
          .getAsJsonObject("logprobs")
          .getAsJsonArray("tokens")
          .forEach(token -> spelled.append(token.getAsString()));
      assertTrue(spelled.toString().startsWith(before), spelled.toString());
      assertFalse(spelled.toString().startsWith(before + stop), "the stop string's own tokens");
    }
  }

  @Test
  void tellsLogprobsAsTheOlderApiHasThem() {
    Sampling sampling = Sampling.seeded(4);
    Generation run = lone(Request.text("€ ROMEO:").tokens(10).sampling(sampling).logprobs(3));
    String body = "{'prompt': '€ ROMEO:', 'max_tokens': 10, 'seed': 4, 'logprobs': 3, 'echo': %s}";
    JsonObject choice = served.complete(body.formatted(true)).has(200).choice(0);
    assertEquals("€ ROMEO:" + run.text(), choice.get("text").getAsString());
    JsonObject logprobs = choice.getAsJsonObject("logprobs");
    assertEquals(
        List.of("tokens", "token_logprobs", "top_logprobs", "text_offset"),
        List.copyOf(logprobs.keySet()));
    int total = run.tokens().size();
    for (String list : logprobs.keySet()) {
      assertEquals(total, logprobs.getAsJsonArray(list).size(), list);
    }
    assertTrue(logprobs.getAsJsonArray("token_logprobs").get(0).isJsonNull());
    assertTrue(logprobs.getAsJsonArray("top_logprobs").get(0).isJsonNull());
    for (int i = 1; i < total; i++) {
      Token token = run.tokens().get(i);
      assertEquals(token.logprob(), logprobs.getAsJsonArray("token_logprobs").get(i).getAsDouble());
      assertEquals(token.charStart(), logprobs.getAsJsonArray("text_offset").get(i).getAsInt());
      JsonObject top = logprobs.getAsJsonArray("top_logprobs").get(i).getAsJsonObject();
      String spelled = logprobs.getAsJsonArray("tokens").get(i).getAsString();
      assertEquals(token.logprob(), top.get(spelled).getAsDouble(), "the token itself is there");
      assertEquals(token.rank() < 3 ? 3 : 4, top.size(), top.toString());
      double best =
          top.asMap().values().stream().mapToDouble(p -> p.getAsDouble()).max().orElseThrow();
      assertEquals(token.top().getFirst().logprob(), best);
    }
    assertEquals("bytes:\\xe2", logprobs.getAsJsonArray("tokens").get(0).getAsString());
    JsonObject own = served.complete(body.formatted(false)).choice(0).getAsJsonObject("logprobs");
    assertEquals(10, own.getAsJsonArray("tokens").size());
    assertEquals(8, own.getAsJsonArray("text_offset").get(0).getAsInt(), "from the prompt's start");
  }

  @Test
  void readsATextWithoutWriting() {
    Served.Answer answer =
        served
            .complete("{'prompt': 'To be or not', 'max_tokens': 0, 'echo': true, 'logprobs': 0}")
            .has(200);
    assertEquals("To be or not", answer.text(0));
    JsonObject logprobs = answer.choice(0).getAsJsonObject("logprobs");
    assertEquals(1, logprobs.getAsJsonArray("top_logprobs").get(1).getAsJsonObject().size());
    usage(answer.json(), logprobs.getAsJsonArray("tokens").size(), 0);
  }

  @Test
  void streamsTheSameText() {
    String body =
        "{'prompt': ['ROMEO:', 'JULIET:'], 'n': 2, 'seed': 9, 'max_tokens': 20, 'echo': true,"
            + "'logprobs': 1, 'stop': 'zzz'";
    Served.Answer whole = served.complete(body + "}").has(200);
    List<JsonObject> chunks =
        served.stream(body + ", 'stream': true, 'stream_options': {'include_usage': true}}");
    JsonObject last = chunks.removeLast();
    assertEquals(0, last.getAsJsonArray("choices").size());
    assertEquals(whole.json().get("usage"), last.get("usage"));
    boolean[] finished = new boolean[4];
    int switches = 0;
    int before = 0;
    for (JsonObject chunk : chunks) {
      assertEquals(last.get("id"), chunk.get("id"));
      assertEquals("text_completion", chunk.get("object").getAsString());
      assertEquals(JsonNull.INSTANCE, chunk.get("usage"));
      assertEquals(1, chunk.getAsJsonArray("choices").size());
      JsonObject choice = chunk.getAsJsonArray("choices").get(0).getAsJsonObject();
      int index = choice.get("index").getAsInt();
      assertFalse(finished[index], "nothing follows the end");
      switches += index == before ? 0 : 1;
      before = index;
      finished[index] = !choice.get("finish_reason").isJsonNull();
      if (finished[index]) {
        assertEquals(whole.choice(index).get("finish_reason"), choice.get("finish_reason"));
        assertEquals(whole.choice(index).get("logprobs"), choice.get("logprobs"));
      }
    }
    assertTrue(switches > 20, switches + ": samples are written side by side");
    for (int index = 0; index < 4; index++) {
      assertTrue(finished[index]);
      assertEquals(whole.text(index), Served.joined(chunks, index));
    }
    assertTrue(chunks.size() > 4 * 15, chunks.size() + " chunks");
    List<JsonObject> plain = served.stream("{'prompt': 'ROMEO:', 'stream': true}");
    assertFalse(plain.getFirst().has("usage"));
  }

  @Test
  void refusesBeforeAStreamBegins() {
    served.complete("{'stream': true, 'max_tokens': 1000}").refused(400, "context");
  }

  @Test
  void countsWhatItDoes() throws InterruptedException {
    int before = Integer.parseInt(served.metric("loupe_generated_tokens_total"));
    served.complete("{'max_tokens': 11}").has(200);
    HttpResponse<String> metrics = served.send(served.to("/metrics"));
    assertEquals(
        "text/plain; version=0.0.4; charset=utf-8",
        metrics.headers().firstValue("content-type").orElse(""));
    for (String line : metrics.body().split("\n", -1)) {
      assertTrue(
          line.isEmpty()
              || line.matches("# (HELP|TYPE) loupe_[a-z_]+ .*")
              || line.matches("loupe_[a-z_]+(\\{path=\"[/a-z0-9]+\",status=\"\\d+\"})? [0-9.]+"),
          line);
    }
    assertEquals(before + 11, Integer.parseInt(served.metric("loupe_generated_tokens_total")));
    assertEquals("0", served.metric("loupe_requests_running"));
    assertEquals("0", served.metric("loupe_requests_waiting"));
    served.get("/nowhere/at/all").refused(404);
    Served.await(
        "unknown paths count as one",
        () -> !served.metric("loupe_requests_total{path=\"other\",status=\"404\"}").equals("none"));
  }
}
