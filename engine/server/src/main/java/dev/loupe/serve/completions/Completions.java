package dev.loupe.serve.completions;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Scheduler;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Fields;
import dev.loupe.serve.http.Metrics;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.http.Places;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CancellationException;

/**
 * {@code /v1/completions}, and {@code /v1/chat/completions} where there is a {@link Kind} of it:
 * the prompts of a request are run one after the other, the n texts of each at once as far as there
 * are slots, beside those of other requests. Choice p * n + s is sample s of prompt p. It is drawn
 * as sample p * n + s, so that prompts that are alike get texts of their own; {@code loupe generate
 * --samples} writes it with the same seed.
 *
 * <p>When a request's time is up, it ends with what it has: texts that were cut so have
 * finish_reason {@code length}. If there is nothing of some prompt yet, the request fails with 503,
 * or with an error as the last event where a stream has begun. A server that closes does the same.
 */
public final class Completions {
  /** How a kind of completion is asked for, and what an answer looks like. */
  public interface Kind {
    /**
     * Reads a request.
     *
     * @throws ApiException if it is wrong
     */
    CompletionRequest read(Fields fields);

    /** What the name of an answer begins with. */
    String prefix();

    /** What an answer is called, or an event of one. */
    String object(boolean stream);

    /** A whole choice. */
    JsonObject whole(CompletionRequest request, Choice choice, int index);

    /**
     * A piece of a choice's text.
     *
     * @param first whether nothing of the choice was sent yet
     */
    JsonObject piece(String text, int index, boolean first);

    /** The end of a choice whose text was sent. */
    JsonObject end(CompletionRequest request, Choice choice, int index, String rest, boolean first);
  }

  /** Texts that are continued. */
  private final class Texts implements Kind {
    @Override
    public CompletionRequest read(Fields fields) {
      return CompletionRequest.of(fields, loupe, model);
    }

    @Override
    public String prefix() {
      return "cmpl-";
    }

    @Override
    public String object(boolean stream) {
      return "text_completion";
    }

    @Override
    public JsonObject whole(CompletionRequest request, Choice choice, int index) {
      return choice.json(request, index);
    }

    @Override
    public JsonObject piece(String text, int index, boolean first) {
      JsonObject choice = new JsonObject();
      choice.addProperty("text", text);
      choice.addProperty("index", index);
      choice.add("logprobs", JsonNull.INSTANCE);
      choice.add("finish_reason", JsonNull.INSTANCE);
      return choice;
    }

    @Override
    public JsonObject end(
        CompletionRequest request, Choice choice, int index, String rest, boolean first) {
      JsonObject json = choice.json(request, index);
      json.addProperty("text", rest);
      return json;
    }
  }

  private final Kind texts = new Texts();
  private final Loupe loupe;
  private final Scheduler scheduler;
  private final String model;
  private final Places places;
  private final Metrics metrics;
  private final Duration timeout;
  private final Outbox outbox;

  public Completions(
      Loupe loupe,
      Scheduler scheduler,
      String model,
      Places places,
      Metrics metrics,
      Duration timeout,
      Outbox outbox) {
    this.loupe = loupe;
    this.scheduler = scheduler;
    this.model = model;
    this.places = places;
    this.metrics = metrics;
    this.timeout = timeout;
    this.outbox = outbox;
  }

  /**
   * Answers with continuations of texts.
   *
   * @throws ApiException if the request is wrong or can't be served
   */
  public void answer(Exchange exchange) {
    answer(exchange, texts);
  }

  /** Answers with another kind of completions. */
  public void answer(Exchange exchange, Kind kind) {
    long deadline = System.nanoTime() + timeout.toNanos();
    Answer answer;
    try (Places.Place place = places.enter()) { // first: what is read below takes memory
      CompletionRequest request = kind.read(Fields.parse(exchange.request().body()));
      if (!request.stream()) {
        exchange.reserve(outbox, request.bytes(), deadline);
      }
      answer = new Answer(exchange, kind, request, deadline);
      long start;
      try (Places.Text _ = places.text(exchange.request().body().length, deadline)) {
        place.await(deadline);
        start = System.nanoTime();
        answer.read();
      }
      try {
        answer.run();
      } finally {
        metrics.ran(System.nanoTime() - start);
      }
    } catch (InterruptedException e) {
      throw ApiException.closing();
    }
    answer.finish();
  }

  /** One request that has its turn. */
  private final class Answer {
    private final Exchange exchange;
    private final Kind kind;
    private final CompletionRequest request;
    private final long deadline;
    private final String id;
    private final long created = System.currentTimeMillis() / 1000;
    private final JsonArray choices = new JsonArray();
    private final Set<Integer> begun = new HashSet<>(); // choices that a stream has text of
    private final boolean idsAlone = loupe.tokenizer().whyNoText().isPresent();
    private final Map<Integer, JsonArray> unsent = new HashMap<>(); // ids of choices of a stream
    private List<int[]> prompts = List.of(); // ids of each
    private int promptTokens;
    private int completionTokens;

    Answer(Exchange exchange, Kind kind, CompletionRequest request, long deadline) {
      this.exchange = exchange;
      this.kind = kind;
      id = kind.prefix() + UUID.randomUUID().toString().replace("-", "");
      this.request = request;
      this.deadline = deadline;
    }

    /** Tokenizes the prompts. */
    void read() {
      prompts = request.prompts().read(this::requireWanted);
    }

    void run() {
      for (int p = 0; p < prompts.size(); p++) {
        for (Generation run : run(p)) {
          Choice choice = new Choice(loupe.tokenizer(), run, request.special());
          int index = p * request.n() + run.sample();
          if (request.stream()) {
            boolean first = !begun.contains(index);
            String rest = echoed(p, run.sample(), "");
            JsonObject end = kind.end(request, choice, index, rest, first);
            addUnsent(end, p, run.sample());
            chunk(end);
          } else {
            choices.add(kind.whole(request, choice, index));
          }
        }
      }
    }

    private List<Generation> run(int p) {
      int[] prompt = prompts.get(p);
      requireWanted();
      List<Generation> runs;
      try {
        runs = scheduler.run(request.request(prompt, p).listener(listener(p)));
      } catch (CancellationException e) {
        throw unwanted();
      }
      int written = runs.stream().mapToInt(run -> run.tokens().size() - prompt.length).sum();
      metrics.tokens(prompt.length, written);
      promptTokens += prompt.length;
      completionTokens += written;
      return runs;
    }

    private void requireWanted() {
      if (isOver()) {
        throw unwanted();
      }
    }

    private ApiException unwanted() {
      return exchange.isCancelled() ? ApiException.closing() : tooLate();
    }

    private static ApiException tooLate() {
      return ApiException.failed(
          503, "timeout", "the time of the request was up before it had a text");
    }

    private boolean isOver() {
      return exchange.isCancelled() || System.nanoTime() - deadline > 0;
    }

    private GenerateRequest.Listener listener(int p) {
      return new GenerateRequest.Listener() {
        @Override
        public boolean reading(int layersDone, int layers) {
          return !isOver();
        }

        @Override
        public void token(int sample, int id, double logprob) {
          if (request.stream() && idsAlone) {
            unsent(p, sample).add(id);
          }
        }

        @Override
        public boolean text(int sample, String piece) {
          if (request.stream()) {
            int index = p * request.n() + sample;
            boolean first = !begun.contains(index);
            JsonObject choice = kind.piece(echoed(p, sample, piece), index, first);
            addUnsent(choice, p, sample);
            chunk(choice);
          }
          return !isOver();
        }
      };
    }

    /** A piece of a choice's text, after the prompt if that is wanted and was not sent yet. */
    private String echoed(int p, int sample, String piece) {
      boolean first = begun.add(p * request.n() + sample);
      return first && request.echo()
          ? loupe.tokenizer().decode(prompts.get(p), request.special()) + piece
          : piece;
    }

    /** The ids of a choice that are still to be sent, after the prompt's if that is wanted. */
    private JsonArray unsent(int p, int sample) {
      return unsent.computeIfAbsent(
          p * request.n() + sample,
          _ -> {
            JsonArray ids = new JsonArray();
            if (request.echo()) {
              Arrays.stream(prompts.get(p)).forEach(ids::add);
            }
            return ids;
          });
    }

    private void addUnsent(JsonObject choice, int p, int sample) {
      if (idsAlone) {
        choice.add("token_ids", unsent(p, sample));
        unsent.put(p * request.n() + sample, new JsonArray());
      }
    }

    private void chunk(JsonObject choice) {
      JsonArray one = new JsonArray();
      one.add(choice);
      event(one, false);
    }

    private void event(JsonArray some, boolean last) {
      if (exchange.status() == 0) {
        exchange.beginEvents();
      }
      JsonObject chunk = completion(some);
      if (request.includeUsage()) {
        chunk.add("usage", last ? usage() : JsonNull.INSTANCE);
      }
      exchange.event(chunk.toString());
    }

    void finish() {
      if (!request.stream()) {
        JsonObject whole = completion(choices);
        whole.add("usage", usage());
        exchange.send(200, whole);
        return;
      }
      if (request.includeUsage()) {
        event(new JsonArray(), true);
      }
      exchange.event("[DONE]");
      exchange.endEvents();
    }

    private JsonObject completion(JsonArray some) {
      JsonObject json = new JsonObject();
      json.addProperty("id", id);
      json.addProperty("object", kind.object(request.stream()));
      json.addProperty("created", created);
      json.addProperty("model", model);
      json.add("choices", some);
      json.add("system_fingerprint", JsonNull.INSTANCE);
      return json;
    }

    private JsonObject usage() {
      JsonObject usage = new JsonObject();
      usage.addProperty("prompt_tokens", promptTokens);
      usage.addProperty("completion_tokens", completionTokens);
      usage.addProperty("total_tokens", promptTokens + completionTokens);
      return usage;
    }
  }
}
