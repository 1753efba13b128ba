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
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What comes of a completion, against runs of the library. */
@Timeout(200)
class CompletionsTest extends ServerFixture {
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
}
