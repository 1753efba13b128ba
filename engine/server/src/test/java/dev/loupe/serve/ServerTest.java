package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the server answers, request by request. */
@Timeout(200)
class ServerTest extends ServerFixture {
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
  void countsWhatItDoes() throws InterruptedException {
    int before = Integer.parseInt(served.metric("loupe_generated_tokens_total"));
    // greedy: a draw may be the token that ends a text
    served.complete("{'prompt': 'ROMEO:', 'max_tokens': 11, 'temperature': 0}").has(200);
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
