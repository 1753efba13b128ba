package dev.loupe.serve.workbench;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Loupe;
import dev.loupe.export.trace.GridReport;
import dev.loupe.export.trace.RowReport;
import dev.loupe.export.trace.TraceReport;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.RowNumbers;
import dev.loupe.interpret.trace.Ablation;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.PatchGrid;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.TraceEffort;
import dev.loupe.interpret.trace.TraceListener;
import dev.loupe.interpret.trace.TraceRequest;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.workbench.Runs.Run;
import dev.loupe.weights.config.Gpt2Config;
import java.time.Duration;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CancellationException;
import java.util.function.BooleanSupplier;
import java.util.function.Function;

/**
 * Traces of a run's tokens. The answer is a stream of events: {@code effort} with what it takes at
 * most, {@code tracing} with how far it is, and {@code done} with the trace and its page. A client
 * that goes away stops it.
 */
final class Traces {
  /** Between two events that say how far it is. */
  private static final Duration PAUSE = Duration.ofMillis(100);

  private final Loupe loupe;
  private final Runs runs;
  private final Readings readings;
  private final Outbox outbox;
  private final BooleanSupplier closing;

  Traces(Loupe loupe, Runs runs, Readings readings, Outbox outbox, BooleanSupplier closing) {
    this.loupe = loupe;
    this.runs = runs;
    this.readings = readings;
    this.outbox = outbox;
    this.closing = closing;
  }

  /** What is asked for, without a listener. */
  private TraceRequest request(Run run, Query query) throws InterruptedException {
    if (!run.spec().isPlain()) {
      throw ApiException.invalid(400, null, "a trace is of the model as it is, without changes");
    }
    int vocabulary = loupe.info().config().vocabSize();
    String with = query.optionalId("with");
    Optional<Prompt> second =
        with == null
            ? Optional.empty()
            : Optional.of(runs.look(all -> all.run(with)).spec().prompt());
    String usual = second.isEmpty() ? "mean" : "patch";
    String ablation = query.choice("ablation", usual, "zero", "mean", "patch");
    if (second.isEmpty() && ablation.equals("patch")) {
      throw ApiException.field(
          "with", null, "ablation=patch takes another run: give its name as with");
    }
    return new TraceRequest(
        run.spec().prompt(),
        query.number("q", run.spec().length() - 1, 0, run.spec().length() - 1),
        query.number("target", -1, 0, vocabulary - 1),
        against(query, vocabulary),
        second,
        Ablation.valueOf(ablation.toUpperCase(Locale.ROOT)),
        query.choice("mlps", "false", "true", "false").equals("true"),
        query.number("keep", Math.toIntExact(Math.round(100 * TraceRequest.KEEP)), 1, 99) / 100.0,
        query.number("most", TraceRequest.MOST, 1, TraceRequest.MOST_MEMBERS),
        TraceListener.NONE);
  }

  private static OptionalInt against(Query query, int vocabulary) {
    if (query.is("against", "runner-up")) {
      return OptionalInt.of(TraceRequest.RUNNER_UP);
    }
    int id = query.number("against", -1, 0, vocabulary - 1);
    return id < 0 ? OptionalInt.empty() : OptionalInt.of(id);
  }

  private static JsonObject json(TraceEffort effort) {
    JsonObject json = new JsonObject();
    json.addProperty("cuts", effort.cuts());
    json.addProperty("layer_rows", effort.layerRows());
    return json;
  }

  /** What a trace would take at most. */
  JsonObject effort(Run run, Query query) throws InterruptedException {
    return json(loupe.traceEffort(request(run, query)));
  }

  /**
   * Traces, and answers by events.
   *
   * @throws ApiException if the request is wrong or can't be served
   */
  void answer(Exchange exchange, Run run, Query query, long deadline) throws InterruptedException {
    TraceRequest request = request(run, query);
    TraceEffort effort = loupe.traceEffort(request);
    answer(
        exchange,
        deadline,
        request,
        () -> event(exchange, "effort", json(effort)),
        watched -> {
          Trace trace = loupe.trace(watched);
          JsonObject done = new JsonObject();
          done.add("trace", JsonParser.parseString(TraceReport.json(trace)));
          done.addProperty("html", TraceReport.html(trace));
          return done;
        });
  }

  /**
   * Patches, and answers by events: {@code tracing}, and {@code done} with the grid.
   *
   * @throws ApiException likewise
   */
  void grid(Exchange exchange, Run run, Query query, long deadline) throws InterruptedException {
    String _ = query.text("with");
    TraceRequest request = request(run, query);
    String of = query.choice("of", "layers", "layers", "heads", "head");
    int layers = loupe.info().config().nLayer();
    int heads = loupe.info().config().nHead();
    Part head = new Part(query.number("l", 0, 0, layers - 1), query.number("h", 0, 0, heads - 1));
    TraceEffort _ = loupe.traceEffort(request); // refuses what can't be patched
    answer(
        exchange,
        deadline,
        request,
        () -> {},
        watched -> {
          PatchGrid grid =
              switch (of) {
                case "layers" -> loupe.patch(watched, PatchGrid.Kind.LAYERS);
                case "heads" -> loupe.patch(watched, PatchGrid.Kind.HEADS);
                default -> loupe.patch(watched, head);
              };
          JsonObject done = new JsonObject();
          done.add("grid", JsonParser.parseString(GridReport.json(grid)));
          return done;
        });
  }

  /** The numbers behind a row, as JSON or CSV. */
  String row(Run run, Query query) {
    if (!run.spec().isPlain()) {
      throw ApiException.invalid(400, null, "rows are of the model as it is, without changes");
    }
    Gpt2Config config = loupe.info().config();
    RowNumbers row =
        loupe.row(
            run.spec().prompt(),
            query.number("l", 0, 0, config.nLayer() - 1),
            query.number("h", 0, 0, config.nHead() - 1),
            query.number("q", run.spec().length() - 1, 0, run.spec().length() - 1),
            query.number("target", -1, 0, config.vocabSize() - 1));
    return query.is("as", "csv") ? RowReport.csv(row) : RowReport.json(row);
  }

  /** Measures in its turn, and sends the result as the event {@code done}. */
  private void answer(
      Exchange exchange,
      long deadline,
      TraceRequest request,
      Runnable begin,
      Function<TraceRequest, JsonObject> measure)
      throws InterruptedException {
    JsonObject done;
    try {
      done =
          readings.amongRuns(
              exchange,
              outbox,
              0,
              deadline,
              () -> {
                begin.run();
                return measure.apply(request.listener(listener(exchange, deadline)));
              });
    } catch (CancellationException e) {
      throw exchange.isCancelled() || closing.getAsBoolean()
          ? ApiException.closing()
          : ApiException.failed(503, "timeout", "the time of the request was up");
    }
    event(exchange, "done", done);
    exchange.endEvents();
  }

  private TraceListener listener(Exchange exchange, long deadline) {
    long[] last = {System.nanoTime() - PAUSE.toNanos()};
    return (phase, done, total) -> {
      long now = System.nanoTime();
      if (now - last[0] >= PAUSE.toNanos()) {
        last[0] = now;
        JsonObject json = new JsonObject();
        json.addProperty("phase", phase.label());
        json.addProperty("done", done);
        json.addProperty("total", total);
        event(exchange, "tracing", json);
      }
      return !exchange.isCancelled() && !closing.getAsBoolean() && now - deadline < 0;
    };
  }

  private static void event(Exchange exchange, String name, JsonObject json) {
    if (exchange.status() == 0) {
      exchange.beginEvents();
    }
    json.addProperty("event", name);
    exchange.event(json.toString());
  }
}
