package dev.loupe.serve.workbench;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.Loupe;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Scheduler;
import dev.loupe.generate.Token;
import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.ops.Mask;
import dev.loupe.sampling.Sampling;
import dev.loupe.serve.completions.CompletionRequest;
import dev.loupe.serve.completions.Prompts;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Fields;
import dev.loupe.serve.http.KnownFields;
import dev.loupe.serve.http.Metrics;
import dev.loupe.serve.http.Places;
import dev.loupe.text.Labels;
import dev.loupe.weights.config.Gpt2Config;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;

/**
 * {@code POST /api/runs}: writes a text, or takes one that is there, reads it whole, and keeps
 * that. The answer is a stream of events: {@code prompt} with the tokens to read, {@code reading}
 * with layers done, {@code token} for each that is written, and {@code done} with the run's name.
 *
 * <p>What is kept is made by one pass over the whole text, which on the CPU has the bits of the
 * passes that wrote it, so that a run is the same whether it was written here or only read.
 */
final class RunWriter {
  /** What the page begins with: a sentence that comes again, so that there is something to copy. */
  private static final String EXAMPLE = "The priest is ready, sir. The priest";

  private static final int EXAMPLE_TOKENS = 24;
  private static final Sampling EXAMPLE_SAMPLING = Sampling.seeded(4).withTemperature(0.8);

  /** Alternatives to each token that a run keeps. */
  static final int TOP = 5;

  private final Loupe loupe;
  private final Scheduler scheduler;
  private final Gpt2Config config;
  private final Places places;
  private final Metrics metrics;
  private final Duration timeout;
  private final Runs runs;
  private final Object exampleLock = new Object();
  private @Nullable RunSpec example;

  RunWriter(
      Loupe loupe,
      Scheduler scheduler,
      Places places,
      Metrics metrics,
      Duration timeout,
      Runs runs) {
    this.loupe = loupe;
    this.scheduler = scheduler;
    this.places = places;
    this.metrics = metrics;
    this.timeout = timeout;
    this.runs = runs;
    config = loupe.info().config();
  }

  /**
   * One text to write or to read.
   *
   * @param prompt not read yet: that waits for its turn
   */
  private record Draft(Fields fields, Prompts prompt, int tokens, Sampling sampling) {}

  private record Job(RunSpec spec, int tokens, Sampling sampling) {}

  private Draft draft(Fields fields) {
    KnownFields.RUNS.check(fields);
    if (fields.get("text") != null && fields.get("ids") != null) {
      throw ApiException.field("ids", null, "give text or ids, not both");
    }
    int tokens = (int) fields.whole("tokens", 0, 0, config.nPositions());
    String name = fields.get("ids") == null ? "text" : "ids";
    Prompts prompts =
        Prompts.of(
            name,
            fields,
            loupe,
            new Prompts.Writing("tokens", tokens, true), // to be looked at
            Prompts.Truncation.NONE);
    if (prompts.size() != 1) {
      throw ApiException.field(name, null, "one text, not %d".formatted(prompts.size()));
    }
    return new Draft(fields, prompts, tokens, CompletionRequest.sampling(fields));
  }

  private Job job(Draft draft) {
    int[] ids = draft.prompt.read(() -> {}).getFirst();
    RunSpec spec = RunSpec.of(draft.fields, ids, config);
    if (draft.tokens > 0 && spec.mask() != Mask.CAUSAL) {
      throw ApiException.field("mask", null, "without the causal mask a text is only read");
    }
    if (draft.tokens > 0 && spec.promptLength() < ids.length) {
      throw ApiException.field(
          "prompt_length", null, "what is to be continued is all prompt: leave prompt_length out");
    }
    Gpt2Config _ = spec.interventions().of(config); // refuses what the model has not
    return new Job(spec, draft.tokens, draft.sampling);
  }

  /**
   * @throws ApiException if the request is wrong or can't be served
   */
  void answer(Exchange exchange) throws InterruptedException {
    long deadline = System.nanoTime() + timeout.toNanos();
    JsonObject done;
    try (Places.Place place = places.enter()) {
      Draft draft = draft(Fields.parse(exchange.request().body()));
      Job job;
      long start;
      try (Places.Text _ = places.text(exchange.request().body().length, deadline)) {
        place.await(deadline);
        start = System.nanoTime();
        job = job(draft);
      }
      try {
        done = run(job, new Events(exchange, deadline));
      } catch (CancellationException e) {
        throw exchange.isCancelled()
            ? ApiException.closing()
            : ApiException.failed(503, "timeout", "the time of the request was up");
      } finally {
        metrics.ran(System.nanoTime() - start);
      }
    }
    exchange.event(done.toString());
    exchange.endEvents();
  }

  private JsonObject run(Job job, Events events) throws InterruptedException {
    events.prompt(job.spec);
    RunSpec spec = job.spec;
    String finish = "length";
    if (job.tokens > 0) {
      GenerateRequest request =
          spec.writing()
              .tokens(job.tokens)
              .readAgain(true)
              .sampling(job.sampling)
              .logprobs(0)
              .listener(events);
      Generation written = scheduler.run(request).getFirst();
      finish = written.finish().name().toLowerCase(Locale.ROOT);
      spec = spec.with(written.tokens().stream().map(Token::id).toList());
    }
    metrics.tokens(job.spec.length(), spec.length() - job.spec.length());
    JsonObject done = new JsonObject();
    done.addProperty("event", "done");
    done.addProperty("id", keep(spec, events));
    done.addProperty("finish", finish);
    return done;
  }

  /** Reads a text, unless that was done, and keeps what it takes to look at it. */
  private String keep(RunSpec spec, GenerateRequest.Listener listener) throws InterruptedException {
    String id = spec.id(loupe.info());
    if (runs.look(all -> all.has(id))) {
      return id;
    }
    ActivationCache cache = loupe.cache(spec.reading().listener(listener), TOP);
    try {
      runs.look(
          all -> {
            all.keep(new Runs.Run(id, spec, cache));
            return true;
          });
    } catch (InterruptedException e) {
      cache.close();
      throw e;
    }
    return id;
  }

  /**
   * The name of the run that the page begins with, which is made when somebody asks for it first;
   * empty where the model has no room for it.
   */
  Optional<String> example() throws InterruptedException {
    synchronized (exampleLock) {
      if (example == null) {
        boolean text = loupe.tokenizer().whyNoText().isEmpty();
        int[] ids =
            text
                ? loupe.tokenizer().encodePrompt(EXAMPLE, false, true)
                : HeadSurvey.sequences(config, loupe.tokenizer()).getFirst();
        int tokens = Math.min(EXAMPLE_TOKENS, config.nPositions() - ids.length);
        if (tokens < 1) {
          return Optional.empty();
        }
        GenerateRequest request =
            GenerateRequest.ids(ids).tokens(tokens).sampling(EXAMPLE_SAMPLING);
        List<Integer> all = loupe.run(request).getFirst().tokens().stream().map(Token::id).toList();
        example = new RunSpec(all, ids.length, List.of(), 0, Mask.CAUSAL);
      }
      return Optional.of(keep(example, GenerateRequest.Listener.NONE));
    }
  }

  /** Tells the client how far a run is; ends it when nobody wants it or its time is up. */
  private final class Events implements GenerateRequest.Listener {
    private final Exchange exchange;
    private final long deadline;
    private int at; // index of the next token

    Events(Exchange exchange, long deadline) {
      this.exchange = exchange;
      this.deadline = deadline;
    }

    private void event(String name, JsonObject json) {
      if (exchange.status() == 0) {
        exchange.beginEvents();
      }
      json.addProperty("event", name);
      exchange.event(json.toString());
    }

    void prompt(RunSpec spec) {
      int[] ids = spec.ids().stream().mapToInt(Integer::intValue).toArray();
      at = ids.length;
      List<String> labels = Labels.of(loupe.tokenizer(), ids);
      JsonArray tokens = new JsonArray();
      for (int i = 0; i < ids.length; i++) {
        JsonObject token = new JsonObject();
        token.addProperty("id", ids[i]);
        token.addProperty("label", labels.get(i));
        token.addProperty("generated", i >= spec.promptLength());
        tokens.add(token);
      }
      JsonObject json = new JsonObject();
      json.add("tokens", tokens);
      event("prompt", json);
    }

    private boolean isOver() {
      return exchange.isCancelled() || System.nanoTime() - deadline > 0;
    }

    @Override
    public boolean reading(int layersDone, int layers) {
      JsonObject json = new JsonObject();
      json.addProperty("done", layersDone);
      json.addProperty("layers", layers);
      event("reading", json);
      return !isOver();
    }

    @Override
    public void token(int sample, int id, double logprob) {
      JsonObject json = new JsonObject();
      json.addProperty("index", at++);
      json.addProperty("id", id);
      json.addProperty("label", Labels.label(loupe.tokenizer(), id));
      json.add("logprob", new JsonPrimitive(logprob));
      event("token", json);
    }

    @Override
    public boolean text(int sample, String piece) {
      return !isOver();
    }
  }
}
