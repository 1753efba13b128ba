package dev.loupe.bench;

import com.google.gson.stream.JsonWriter;
import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Precision;
import dev.loupe.text.Count;
import java.io.IOException;
import java.io.StringWriter;
import java.util.Formatter;
import java.util.List;
import java.util.Locale;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.stream.Collectors;

/**
 * What was measured, as a table or as JSON. A pass is a prompt or one step of decoding.
 *
 * @param model what ran, and on what
 * @param precision what the weights were computed with
 * @param threads of the CPU
 * @param prompt the token ids that were read
 * @param measured with which maps; at least one, in the order of {@link Maps}
 * @param memory while runs warmed up
 * @param card what else is said of a GPU
 */
public record BenchReport(
    Settings settings,
    ModelInfo model,
    Precision precision,
    int threads,
    List<Integer> prompt,
    List<Measured> measured,
    Memory memory,
    Card card,
    Machine machine) {

  public BenchReport {
    prompt = List.copyOf(prompt);
    measured = List.copyOf(measured);
  }

  /**
   * A report of what {@link Benchmark#run} measured.
   *
   * @param result of at least one run
   * @param ceilings for each of its runs the best of as many threads just before and after it; none
   *     for a GPU or without the Vector API
   */
  public static BenchReport of(
      Settings settings,
      ModelInfo model,
      Precision precision,
      int threads,
      Benchmark.Result result,
      List<Ceilings> ceilings,
      Machine machine) {
    return new BenchReport(
        settings,
        model,
        precision,
        threads,
        result.prompt(),
        Measured.of(model, precision, settings, result.runs(), ceilings),
        result.memory(),
        result.card(),
        machine);
  }

  /** Whether the card is one whose times say nothing of a GPU. */
  private boolean emulated() {
    return model.backend().equals("cuda") && model.device().contains("emulator");
  }

  private boolean prefill() {
    return settings.phase() == Phase.PREFILL;
  }

  /** Whether kinds of maps are compared. */
  private boolean several() {
    return settings.maps().size() > 1;
  }

  private static String small(Enum<?> constant) {
    return constant.name().toLowerCase(Locale.ROOT);
  }

  private long weightBytes() {
    return Work.weightBytes(model.config(), Work.Storage.of(model, precision));
  }

  private int tokens() {
    return settings.promptTokens() + settings.written();
  }

  private long cacheBytes() {
    Work.Storage storage = Work.Storage.of(model, precision);
    return settings.texts() * Work.cacheBytes(model.config(), storage, tokens());
  }

  private long mapBytes(Maps maps) {
    if (maps == Maps.NONE) {
      return 0;
    }
    int layers = Benchmark.selection(maps).of(model.config()).layers().size();
    return settings.texts() * Work.mapBytes(model.config(), layers, tokens());
  }

  /** A table of at most 80 columns, unless names are long. */
  public String text() {
    Formatter text = new Formatter(Locale.ROOT);
    text.format(
        "%s of %s in %s, stored in %s%non %s%n",
        small(settings.phase()), model.source(), small(precision), model.dtype(), model.device());
    int runs = measured.stream().mapToInt(m -> m.milliseconds().size()).sum();
    text.format(
        "prompt of %s%s%s; %d of %s after %d to warm up%s%n%n",
        Count.of(settings.promptTokens(), "token"),
        prefill() ? "" : ", then %d more".formatted(settings.steps()),
        settings.texts() == 1 ? "" : " in each of %d texts at once".formatted(settings.texts()),
        runs,
        Count.of(settings.allRuns() - settings.warmUpRuns(), "run"),
        settings.warmUpRuns(),
        several() ? ", in turns" : "");
    for (Measured each : measured) {
      times(text, each);
    }
    if (emulated()) {
      text.format("An emulated card: its times say nothing of a GPU.%n%n");
    }
    work(text, measured.getFirst());
    memory(text);
    text.format("%s; %s", machine.cpu(), Count.of(machine.processors(), "processor"));
    if (machine.vectorBits() > 0) {
      text.format(", %d-bit vectors", machine.vectorBits());
    }
    text.format("%nJava %s", machine.java());
    if (machine.load() >= 0) {
      text.format("; load before these runs %.2f", machine.load());
    }
    return text.format("%n").toString();
  }

  private void times(Formatter text, Measured each) {
    text.format("%-16s %12s %12s %12s%n", "maps: " + small(each.maps()), "median", "p10", "p90");
    if (emulated()) {
      row(text, "ms, emulated", each.times());
    } else {
      row(text, "tokens/s", each.tokensPerSecond());
      row(text, "ms " + pass(), each.times());
      if (!each.timesNone().isEmpty()) {
        row(text, "times none", Spread.of(each.timesNone()));
      }
    }
    text.format("%n");
  }

  private String pass() {
    return prefill() ? "a prompt" : settings.texts() == 1 ? "a token" : "a step";
  }

  private static void row(Formatter text, String what, Spread spread) {
    text.format("%-16s %12.3f %12.3f %12.3f%n", what, spread.median(), spread.p10(), spread.p90());
  }

  private void work(Formatter text, Measured of) {
    boolean best = !of.ceilings().isEmpty();
    String heading = several() ? "by formula, " + small(of.maps()) : "by formula";
    text.format("%-16s %12s", heading, pass());
    text.format(" %18s", emulated() ? "" : "a second");
    if (best) {
      text.format("  of this machine's best");
    } else if (card.copy().isPresent()) {
      text.format("  of what the card copies");
    }
    text.format("%n");
    text.format("%-16s %9.1f MB", "bytes", of.work().bytes() / 1e6);
    if (!emulated()) {
      text.format(" %13.1f GB/s", of.gigabytesPerSecond());
    }
    if (best) {
      text.format(" %5.1f%% of %.1f", of.percentOfRead(), of.readCeiling());
    }
    OptionalDouble ofCopy = card.percentOfCopy(of);
    if (ofCopy.isPresent()) {
      double copy = card.copy().getAsDouble() / Measured.GIGA;
      text.format(" %5.1f%% of %.1f", ofCopy.getAsDouble(), copy);
    }
    text.format("%n%-16s %10.1f M", "multiply-adds", of.work().multiplyAdds() / 1e6);
    if (!emulated()) {
      text.format(" %10.1f GFLOP/s", of.gigaflopPerSecond());
    }
    if (best) {
      text.format(" %5.1f%% of %.1f", of.percentOfMultiplyAdds(), of.flopCeiling());
    }
    if (card.launches().isPresent()) {
      text.format("%n%-16s %10d", "launches", card.launches().getAsLong());
    }
    text.format("%n%n");
  }

  private void memory(Formatter text) {
    if (memory.peak().isPresent()) {
      megabytes(text, "peak of process", memory.peak().getAsLong());
    }
    if (memory.card().isPresent()) {
      megabytes(text, emulated() ? "emulated card" : "card in use", memory.card().getAsLong());
    }
    megabytes(text, "Java's heap", memory.heap());
    megabytes(text, "weights", weightBytes());
    megabytes(text, "KV cache", cacheBytes());
    for (Measured each : measured) {
      if (each.maps() != Maps.NONE) {
        megabytes(text, "maps: " + small(each.maps()), mapBytes(each.maps()));
      }
    }
    text.format("%n");
  }

  private static void megabytes(Formatter text, String what, long bytes) {
    text.format("%-16s %9.1f MB%n", what, bytes / 1e6);
  }

  /**
   * One object on one line; what is not there is null. Schema {@code loupe-bench/1} has what was
   * measured in the object itself, {@code loupe-bench/2}, where several kinds of maps are compared,
   * in {@code measured}, an object for each.
   */
  public String json() {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value(several() ? "loupe-bench/2" : "loupe-bench/1");
      json.name("phase").value(small(settings.phase()));
      model(json);
      settings(json);
      json.name("prompt").beginArray();
      for (int id : prompt) {
        json.value(id);
      }
      json.endArray();
      if (several()) {
        several(json);
      } else {
        results(json, measured.getFirst());
      }
      memory(json);
      number(json, "launches_per_step", card.launches());
      number(json, "copy_bytes_per_second", card.copy());
      machine(json);
      json.endObject();
    } catch (IOException e) {
      throw new AssertionError("a StringWriter takes all", e);
    }
    return out.toString();
  }

  private void model(JsonWriter json) throws IOException {
    json.name("model").beginObject();
    json.name("source").value(model.source());
    json.name("n_layer").value(model.config().nLayer());
    json.name("n_head").value(model.config().nHead());
    json.name("n_embd").value(model.config().nEmbd());
    json.name("stored").value(model.dtype());
    json.name("dtype").value(small(precision));
    json.name("backend").value(model.backend());
    json.name("device").value(model.device());
    json.name("emulated").value(emulated());
    json.endObject();
  }

  private void settings(JsonWriter json) throws IOException {
    json.name("settings").beginObject();
    json.name("prompt_tokens").value(settings.promptTokens());
    json.name("tokens").value(settings.steps());
    json.name("texts").value(settings.texts());
    json.name("attention")
        .value(settings.maps().stream().map(BenchReport::small).collect(Collectors.joining(",")));
    json.name("runs").value(settings.runs());
    json.name("warm_up_runs").value(Benchmark.WARM_UP_RUNS);
    json.endObject();
  }

  private void several(JsonWriter json) throws IOException {
    json.name("measured").beginArray();
    for (Measured each : measured) {
      json.beginObject();
      json.name("attention").value(small(each.maps()));
      results(json, each);
      json.name("times_none");
      if (emulated() || each.timesNone().isEmpty()) {
        json.nullValue();
      } else {
        json.beginObject();
        numbers(json.name("rounds"), each.timesNone());
        spread(json, Spread.of(each.timesNone()));
        json.endObject();
      }
      json.endObject();
    }
    json.endArray();
  }

  private void results(JsonWriter json, Measured of) throws IOException {
    numbers(json.name("ms"), of.milliseconds());
    json.name("ms_per_pass").beginObject();
    spread(json, of.times());
    json.endObject();
    json.name("tokens_per_second");
    if (emulated()) {
      json.nullValue();
    } else {
      json.beginObject();
      spread(json, of.tokensPerSecond());
      json.endObject();
    }
    json.name("bytes_per_pass").value(of.work().bytes());
    json.name("multiply_adds_per_pass").value(of.work().multiplyAdds());
    number(json, "gb_per_second", !emulated(), of.gigabytesPerSecond());
    number(json, "gflop_per_second", !emulated(), of.gigaflopPerSecond());
    boolean best = !of.ceilings().isEmpty();
    number(json, "percent_of_read", best, best ? of.percentOfRead() : 0);
    number(json, "percent_of_fma", best, best ? of.percentOfMultiplyAdds() : 0);
    number(json, "percent_of_copy", card.percentOfCopy(of));
    json.name("ceilings");
    if (best) {
      json.beginObject();
      json.name("read_gb_per_second").value(of.readCeiling());
      json.name("fma_gflop_per_second").value(of.flopCeiling());
      json.endObject();
    } else {
      json.nullValue();
    }
    json.name("map_bytes").value(mapBytes(of.maps()));
  }

  private void memory(JsonWriter json) throws IOException {
    json.name("memory").beginObject();
    number(json, "process_peak_bytes", memory.peak());
    number(json, "card_bytes", memory.card());
    json.name("heap_bytes").value(memory.heap());
    json.name("weight_bytes").value(weightBytes());
    json.name("kv_cache_bytes").value(cacheBytes());
    json.endObject();
  }

  private void machine(JsonWriter json) throws IOException {
    json.name("machine").beginObject();
    json.name("cpu").value(machine.cpu());
    json.name("processors").value(machine.processors());
    json.name("threads").value(threads);
    json.name("vector_bits").value(machine.vectorBits());
    json.name("java").value(machine.java());
    number(json, "load_before", machine.load() >= 0, machine.load());
    json.endObject();
  }

  private static void spread(JsonWriter json, Spread spread) throws IOException {
    json.name("median").value(spread.median());
    json.name("p10").value(spread.p10());
    json.name("p90").value(spread.p90());
  }

  private static void numbers(JsonWriter json, List<Double> values) throws IOException {
    json.beginArray();
    for (double each : values) {
      json.value(each);
    }
    json.endArray();
  }

  private static void number(JsonWriter json, String name, OptionalLong value) throws IOException {
    json.name(name);
    if (value.isPresent()) {
      json.value(value.getAsLong());
    } else {
      json.nullValue();
    }
  }

  private static void number(JsonWriter json, String name, OptionalDouble value)
      throws IOException {
    number(json, name, value.isPresent(), value.orElse(0));
  }

  private static void number(JsonWriter json, String name, boolean there, double value)
      throws IOException {
    json.name(name);
    if (there) {
      json.value(value);
    } else {
      json.nullValue();
    }
  }
}
