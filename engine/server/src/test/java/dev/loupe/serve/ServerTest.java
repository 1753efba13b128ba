package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.TextEnds;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
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

  private static Generation lone(GenerateRequest request) {
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
        "/v1/chat",
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
        "{'max_tokens': 257} => the prompt has 1 token and max_tokens is 257; context holds 256",
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
        "{'prompt': 'ROMEO:', 'seed': 3, 'user': 'me', 'metadata': {'a': [1]}, 'best_of': 1,"
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
    Generation run = lone(GenerateRequest.text("ROMEO:").tokens(30).sampling(sampling));
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
        lone(GenerateRequest.text("").tokens(16).sampling(Sampling.seeded(5))).text(),
        answer.text(0));
    usage(answer.json(), 1, 16);
    assertNotEquals(
        served.complete("{'max_tokens': 60}").text(0),
        served.complete("{'max_tokens': 60}").text(0));
    Served.Answer greedy = served.complete("{'prompt': 'ROMEO:', 'temperature': 0}");
    assertEquals(
        lone(GenerateRequest.text("ROMEO:").tokens(16).sampling(Sampling.greedy())).text(),
        greedy.text(0));
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
            .run(GenerateRequest.text("ROMEO:").tokens(12).samples(2).sampling(Sampling.seeded(2)));
    List<Generation> four =
        served
            .loupe()
            .run(GenerateRequest.text("ROMEO:").tokens(12).samples(4).sampling(Sampling.seeded(2)));
    for (int sample = 0; sample < 2; sample++) {
      assertEquals(runs.get(sample).text(), one.text(sample));
      assertEquals(runs.get(sample).text(), byIds.text(sample));
      assertEquals(four.get(2 + sample).text(), two.text(2 + sample));
      assertEquals(four.get(2 + sample).text(), twoByIds.text(2 + sample));
      assertEquals(2 + sample, two.choice(2 + sample).get("index").getAsInt());
    }
    assertNotEquals(one.text(0), one.text(1));
    assertEquals(4, two.json().getAsJsonArray("choices").size());
    usage(one.json(), romeo.length, 24);
    int juliet = served.loupe().tokenizer().encode("JULIET:", false).length;
    usage(two.json(), juliet + romeo.length, 48);
  }

  @Test
  void promptsThatAreAlikeGetTextsOfTheirOwn() {
    String body = "{'prompt': ['ROMEO:', 'ROMEO:', 'ROMEO:'], 'n': 2, 'max_tokens': 20%s}";
    List<Generation> six =
        served
            .loupe()
            .run(GenerateRequest.text("ROMEO:").tokens(20).samples(6).sampling(Sampling.seeded(8)));
    Served.Answer seeded = served.complete(body.formatted(", 'seed': 8")).has(200);
    Set<String> different = new HashSet<>();
    for (int i = 0; i < 6; i++) {
      assertEquals(six.get(i).text(), seeded.text(i), "counted by prompt and sample");
      different.add(seeded.text(i));
    }
    assertEquals(6, different.size());
    List<JsonObject> chunks = served.stream(body.formatted(", 'seed': 8, 'stream': true"));
    Served.Answer drawn = served.complete(body.formatted("")).has(200);
    for (int i = 0; i < 6; i++) {
      assertEquals(six.get(i).text(), Served.joined(chunks, i), "streamed");
      different.add(drawn.text(i));
    }
    assertEquals(12, different.size(), "without a seed each draws its own");
  }

  @Test
  void theLastTokenNeedsNoPosition() {
    JsonArray full = new JsonArray();
    for (int i = 0; i < 256; i++) {
      full.add(7 * i % 1000);
    }
    String body = "{'prompt': %s, 'max_tokens': %d, 'echo': true, 'logprobs': 1, 'seed': 1%s}";
    JsonObject logprobs =
        served.complete(body.formatted(full, 1, "")).has(200).choice(0).getAsJsonObject("logprobs");
    assertEquals(257, logprobs.getAsJsonArray("tokens").size());
    served.complete(body.formatted(full, 2, "")).refused(400, "256 tokens", "max_tokens is 2");
    full.add(5);
    served.complete(body.formatted(full, 0, "")).refused(400, "257 tokens");
    String kept = ", 'truncate_prompt_tokens': %d";
    Served.Answer cut = served.complete(body.formatted(full, 1, kept.formatted(-1))).has(200);
    usage(cut.json(), 256, 1);
    usage(served.complete(body.formatted(full, 9, kept.formatted(-1))).has(200).json(), 248, 9);
    usage(served.complete(body.formatted(full, 9, kept.formatted(3))).has(200).json(), 3, 9);
    served.complete(body.formatted(full, 9, kept.formatted(256))).refused(400, "256 tokens");
  }

  @Test
  void keepsTheLastTokensOfAPrompt() {
    String text = "To be or not to be, that is the question: ";
    int[] all = served.loupe().tokenizer().encode(text.repeat(3), false);
    String body = "{'prompt': '%s', 'truncate_prompt_tokens': %d, 'seed': 3, 'max_tokens': 9}";
    Served.Answer answer = served.complete(body.formatted(text.repeat(3), 7)).has(200);
    int[] last = Arrays.copyOfRange(all, all.length - 7, all.length);
    GenerateRequest request = GenerateRequest.ids(last).tokens(9).sampling(Sampling.seeded(3));
    assertEquals(lone(request).text(), answer.text(0));
    usage(answer.json(), 7, 9);
    // of any length
    usage(served.complete(body.formatted(text.repeat(5000), -1)).has(200).json(), 248, 9);
    assertEquals(
        lone(GenerateRequest.ids(all).tokens(9).sampling(Sampling.seeded(3))).text(),
        served.complete(body.formatted(text.repeat(3), 200)).has(200).text(0));
  }

  @Test
  void endsAtTokensAndNotBefore() {
    GenerateRequest request =
        GenerateRequest.text("ROMEO:").tokens(40).sampling(Sampling.seeded(6));
    Generation plain = lone(request);
    int id = plain.tokens().get(plain.promptLength() + 9).id();
    String body = "{'prompt': 'ROMEO:', 'max_tokens': 40, 'seed': 6, 'stop_token_ids': [%d]%s}";
    Generation ended = lone(request.stopTokens(Set.of(id)));
    Served.Answer answer = served.complete(body.formatted(id, "")).has(200);
    assertEquals(ended.text(), answer.text(0));
    assertEquals("stop", answer.choice(0).get("finish_reason").getAsString());
    usage(answer.json(), plain.promptLength(), ended.tokens().size() - plain.promptLength());
    Generation later = lone(request.minTokens(20));
    Served.Answer least = served.complete(body.formatted(id, ", 'min_tokens': 20")).has(200);
    assertEquals(later.text(), least.text(0));
    assertTrue(later.tokens().size() >= plain.promptLength() + 20);
    List<JsonObject> chunks =
        served.stream(body.formatted(id, ", 'min_tokens': 20, 'stream': true"));
    assertEquals(later.text(), Served.joined(chunks, 0));
  }

  @Test
  void writesOnAfterTheEndOfAText(@TempDir Path folder) throws IOException {
    GenerateRequest request = GenerateRequest.text("ROMEO:").tokens(20).sampling(Sampling.greedy());
    Generation plain = lone(request);
    int end = plain.tokens().get(plain.promptLength() + 5).id();
    Loupe loupe = TextEnds.demoThatEndsAt(end, folder);
    try (Served ends =
        Served.start(loupe, Served.options(), why -> fail(why), Duration.ofSeconds(30))) {
      String body = "{'prompt': 'ROMEO:', 'max_tokens': 20, 'temperature': 0%s}";
      Served.Answer ended = ends.complete(body.formatted("")).has(200);
      assertEquals("stop", ended.choice(0).get("finish_reason").getAsString());
      Served.Answer on = ends.complete(body.formatted(", 'ignore_eos': true")).has(200);
      assertEquals(plain.text(), on.text(0));
      assertEquals("length", on.choice(0).get("finish_reason").getAsString());
      Served.Answer least = ends.complete(body.formatted(", 'min_tokens': 20")).has(200);
      usage(least.json(), plain.promptLength(), 20);
      assertNotEquals(plain.text(), least.text(0));
    }
  }

  /** A field and its value; then the name of the parameter that is refused. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "'colour': {'a': [1]} => colour",
        "'colour': false => colour",
        "'Max_tokens': 5 => Max_tokens",
        "'max_token': 5 => max_token",
        "'stops': 'x' => stops",
        "'use_beam_search': true => use_beam_search",
        "'response_format': {'type': 'json_object'} => response_format",
        "'logit_bias': {'5': 1} => logit_bias",
        "'suffix': 'x' => suffix",
        "'guided_regex': 'x' => guided_regex",
        "'length_penalty': 0.5 => length_penalty",
        "'skip_special_tokens': false => skip_special_tokens",
        "'tools': [{}] => tools",
        "'stream_options': {'include_usages': true} => include_usages",
        "'ignore_eos': 1 => ignore_eos",
        "'min_tokens': 17 => min_tokens",
        "'min_tokens': -1 => min_tokens",
        "'stop_token_ids': 5 => stop_token_ids",
        "'stop_token_ids': [1024] => stop_token_ids",
        "'stop_token_ids': ['x'] => stop_token_ids",
        "'truncate_prompt_tokens': 0 => truncate_prompt_tokens",
        "'truncate_prompt_tokens': -2 => truncate_prompt_tokens",
        "'truncate_prompt_tokens': 257 => truncate_prompt_tokens"
      })
  void refusesWhatItWouldPassOver(String line) {
    String[] sides = line.split(" => ", -1);
    JsonObject error = served.complete("{%s}".formatted(sides[0])).refused(400, sides[1]);
    assertEquals(sides[1], error.get("param").getAsString());
    assertEquals("invalid_request_error", error.get("type").getAsString());
  }

  @Test
  void takesFieldsThatAskForNothing() {
    String text = served.complete("{'prompt': 'ROMEO:', 'seed': 3}").has(200).text(0);
    String more =
        "{'prompt': 'ROMEO:', 'seed': 3, 'user': 'me', 'store': true, 'service_tier': 'auto',"
            + "'use_beam_search': false, 'length_penalty': 1.0, 'early_stopping': false,"
            + "'response_format': {'type': 'text'}, 'guided_json': null, 'nothing': null,"
            + "'logit_bias': {}, 'suffix': '', 'stop_token_ids': [], 'min_tokens': 0,"
            + "'ignore_eos': false, 'truncate_prompt_tokens': null, 'skip_special_tokens': true,"
            + "'stream_options': {'include_obfuscation': true}, 'best_of': 1}";
    assertEquals(text, served.complete(more).has(200).text(0));
  }

  @Test
  void refusesLongPromptsBeforeItReadsThem() {
    String long1 = "a b".repeat(300_000);
    JsonObject error =
        served.complete("{'prompt': '%s'}".formatted(long1)).refused(400, "900000 bytes", "256");
    assertEquals("context_length_exceeded", error.get("code").getAsString());
    assertEquals("prompt", error.get("param").getAsString());
    served
        .complete("{'prompt': ['x', '%s']}".formatted("\u20ac".repeat(9000)))
        .refused(400, "27000 bytes");
    long most = served.loupe().tokenizer().mostBytes(256);
    assertTrue(most >= 256 && most < 9000, "bytes: " + most);
  }

  @Test
  void everyAnswerHasAnId() {
    Set<String> ids = new HashSet<>();
    for (String path : List.of("/healthz", "/v1/models", "/nowhere", "/metrics", "/")) {
      ids.add(served.send(served.to(path)).headers().firstValue("x-request-id").orElseThrow());
    }
    Served.Answer given = served.ask(served.to("/v1/models").header("X-Request-Id", "mine-17"));
    assertEquals("mine-17", given.response().headers().firstValue("x-request-id").orElseThrow());
    String stream =
        served
            .send(
                served
                    .to("/v1/completions")
                    .header("x-request-id", "a b")
                    .POST(BodyPublishers.ofString("{\"stream\": true}")))
            .headers()
            .firstValue("x-request-id")
            .orElseThrow();
    ids.add(stream);
    ids.add(
        served
            .complete("{'user': '%s'}".formatted("x".repeat(Server.MOST_BODY)))
            .has(413)
            .response()
            .headers()
            .firstValue("x-request-id")
            .orElseThrow());
    assertEquals(7, ids.size(), ids.toString());
    assertTrue(ids.stream().allMatch(id -> id.matches("req_[0-9a-f]{24}")), ids.toString());
  }

  @Test
  void turnsTextIntoTokensAndBack() {
    String text = "naïve ☂\nROMEO: <|endoftext|>x";
    String body = text.replace("\n", "\\n");
    Served.Answer answer =
        served.post("/tokenize", "{'prompt': '%s', 'return_token_strs': true}".formatted(body));
    JsonObject json = answer.has(200).json();
    int[] ids = served.loupe().tokenizer().encode(text, true);
    assertEquals(ids.length, json.get("count").getAsInt());
    assertEquals(256, json.get("max_model_len").getAsInt());
    JsonArray tokens = json.getAsJsonArray("tokens");
    for (int i = 0; i < ids.length; i++) {
      assertEquals(ids[i], tokens.get(i).getAsInt());
      assertEquals(
          served.loupe().tokenizer().raw(ids[i]),
          json.getAsJsonArray("token_strs").get(i).getAsString());
    }
    JsonObject back =
        served.post("/detokenize", "{'tokens': %s}".formatted(tokens)).has(200).json();
    assertEquals(text, back.get("prompt").getAsString());
    JsonObject plain =
        served.post("/tokenize", "{'prompt': '%s', 'special': false}".formatted(body)).json();
    assertEquals(
        served.loupe().tokenizer().encode(text, false).length, plain.get("count").getAsInt());
    assertTrue(plain.get("token_strs").isJsonNull());
    JsonObject info = served.get("/tokenizer_info").has(200).json();
    String end = info.get("eos_token").getAsString();
    JsonArray ofEnd =
        served
            .post("/tokenize", "{'prompt': '%s', 'add_special_tokens': false}".formatted(end))
            .json()
            .getAsJsonArray("tokens");
    assertEquals(1, ofEnd.size());
    assertEquals(served.loupe().info().config().eosTokenIds().getFirst(), ofEnd.get(0).getAsInt());
    served.post("/tokenize", "{}").refused(400, "prompt");
    served.post("/tokenize", "{'prompt': ['a']}").refused(400, "prompt");
    served.post("/tokenize", "{'text': 'a'}").refused(400, "text");
    served.post("/tokenize", "{'prompt': 'a', 'model': 'gpt-4'}").refused(404, "gpt-4");
    served.post("/detokenize", "{'tokens': [1024]}").refused(400, "1023");
    served.post("/detokenize", "{'tokens': 'a'}").refused(400, "tokens");
    served.get("/tokenize").refused(405, "POST");
  }

  @Test
  void saysThatThereIsNoChatFormat() {
    served
        .post("/v1/chat/completions", "{'messages': [{'role': 'user', 'content': 'hi'}]}")
        .refused(400, "chat format", "/v1/completions");
  }

  @Test
  void saysThatNothingIsThere() {
    String message = served.get("/v1/nothing").refused(404).get("message").getAsString();
    assertEquals("nothing is served at this path; /openapi.json lists what is served", message);
  }

  @Test
  void stopsBeforeAString() {
    Generation run = lone(GenerateRequest.text("ROMEO:").tokens(60).sampling(Sampling.greedy()));
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
    Generation run =
        lone(GenerateRequest.text("€ ROMEO:").tokens(10).sampling(sampling).logprobs(3));
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
              || line.matches("loupe_[a-z_]+(\\{path=\"[/a-z0-9_.]+\",status=\"\\d+\"})? [0-9.]+"),
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
