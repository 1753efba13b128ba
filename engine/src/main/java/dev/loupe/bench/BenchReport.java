package dev.loupe.bench;

import com.google.gson.stream.JsonWriter;
import dev.loupe.ModelInfo;
import dev.loupe.Precision;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Result;
import dev.loupe.bench.Benchmark.Settings;
import java.io.IOException;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Formatter;
import java.util.List;
import java.util.Locale;
import java.util.function.ToDoubleFunction;

/**
 * What was measured, as a table or as JSON. A pass is a prompt or one step of decoding.
 *
 * @param model what ran, and on what
 * @param precision what the weights were computed with
 * @param threads of the CPU
 * @param result of at least one run
 * @param work of a pass
 * @param ceilings for each run the best of as many threads just before and after it, since a shared
 *     machine has better and worse moments; none for a GPU or without the Vector API
 */
public record BenchReport(
    Settings settings,
    ModelInfo model,
    Precision precision,
    int threads,
    Result result,
    Work work,
    List<Ceilings> ceilings,
    Machine machine) {

  private static final double GIGA = 1e9;

  /** Whether the card is one whose times say nothing of a GPU. */
  private boolean emulated() {
    return model.backend().equals("cuda") && model.device().contains("emulator");
  }

  private boolean prefill() {
    return settings.phase() == Phase.PREFILL;
  }

  private Spread times() {
    return Spread.of(result.milliseconds());
  }

  private Spread tokensPerSecond() {
    int tokens = prefill() ? settings.promptTokens() : 1;
    return Spread.of(result.milliseconds().stream().map(ms -> tokens / ms * 1000).toList());
  }

  /** By the median. */
  private double bytesPerSecond() {
    return work.bytes() / times().median() * 1000;
  }

  /** By the median; a multiply-add is two operations. */
  private double flopPerSecond() {
    return 2 * work.multiplyAdds() / times().median() * 1000;
  }

  /** The median over the runs of what each had of its ceiling. */
  private double percent(double work, ToDoubleFunction<Ceilings> ceiling) {
    List<Double> all = new ArrayList<>();
    for (int i = 0; i < result.milliseconds().size(); i++) {
      double rate = work / result.milliseconds().get(i) * 1000;
      all.add(100 * rate / ceiling.applyAsDouble(ceilings.get(i)));
    }
    return Spread.of(all).median();
  }

  private double ofRead() {
    return percent(work.bytes(), Ceilings::readBytes);
  }

  private double ofMultiplyAdds() {
    return percent(work.multiplyAdds(), Ceilings::multiplyAdds);
  }

  private double ceiling(ToDoubleFunction<Ceilings> ceiling) {
    return Spread.of(ceilings.stream().map(ceiling::applyAsDouble).toList()).median();
  }

  private static String small(Enum<?> constant) {
    return constant.name().toLowerCase(Locale.ROOT);
  }

  /** A table of at most 80 columns, unless names are long. */
  public String text() {
    Formatter text = new Formatter(Locale.ROOT);
    text.format(
        "%s of %s in %s, stored in %s%non %s%n",
        small(settings.phase()), model.source(), small(precision), model.dtype(), model.device());
    text.format(
        "prompt of %d tokens%s; maps: %s; %d of %d runs after %d to warm up%n%n",
        settings.promptTokens(),
        prefill() ? "" : ", then %d more".formatted(settings.steps()),
        small(settings.maps()),
        result.milliseconds().size(),
        settings.runs(),
        Benchmark.WARM_UP_RUNS);
    times(text);
    work(text);
    text.format("%s; %d processors", machine.cpu(), machine.processors());
    if (machine.vectorBits() > 0) {
      text.format(", %d-bit vectors", machine.vectorBits());
    }
    text.format("%nJava %s", machine.java());
    if (machine.load() >= 0) {
      text.format("; load before these runs %.2f", machine.load());
    }
    return text.format("%n").toString();
  }

  private void times(Formatter text) {
    text.format("%-16s %12s %12s %12s%n", "", "median", "p10", "p90");
    if (emulated()) {
      row(text, "ms, emulated", times());
      text.format("An emulated card: its times say nothing of a GPU.%n%n");
      return;
    }
    row(text, "tokens/s", tokensPerSecond());
    row(text, prefill() ? "ms a prompt" : "ms a token", times());
    text.format("%n");
  }

  private static void row(Formatter text, String what, Spread spread) {
    text.format("%-16s %12.3f %12.3f %12.3f%n", what, spread.median(), spread.p10(), spread.p90());
  }

  private void work(Formatter text) {
    text.format("%-16s %12s", "by formula", prefill() ? "a prompt" : "a token");
    text.format(" %18s", emulated() ? "" : "a second");
    text.format("%s%n", ceilings.isEmpty() ? "" : "  of this machine's best");
    text.format("%-16s %9.1f MB", "bytes", work.bytes() / 1e6);
    if (!emulated()) {
      text.format(" %13.1f GB/s", bytesPerSecond() / GIGA);
    }
    if (!ceilings.isEmpty()) {
      text.format(" %5.1f%% of %.1f", ofRead(), ceiling(Ceilings::readBytes) / GIGA);
    }
    text.format("%n%-16s %10.1f M", "multiply-adds", work.multiplyAdds() / 1e6);
    if (!emulated()) {
      text.format(" %10.1f GFLOP/s", flopPerSecond() / GIGA);
    }
    if (!ceilings.isEmpty()) {
      double best = 2 * ceiling(Ceilings::multiplyAdds);
      text.format(" %5.1f%% of %.1f", ofMultiplyAdds(), best / GIGA);
    }
    text.format("%n%n");
  }

  /** One object on one line, schema {@code loupe-bench/1}; what is not there is null. */
  public String json() {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value("loupe-bench/1");
      json.name("phase").value(small(settings.phase()));
      model(json);
      settings(json);
      results(json);
      ceilings(json);
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
    json.name("attention").value(small(settings.maps()));
    json.name("runs").value(settings.runs());
    json.name("warm_up_runs").value(Benchmark.WARM_UP_RUNS);
    json.endObject();
  }

  private void results(JsonWriter json) throws IOException {
    json.name("prompt").beginArray();
    for (int id : result.prompt()) {
      json.value(id);
    }
    json.endArray();
    json.name("ms").beginArray();
    for (double each : result.milliseconds()) {
      json.value(each);
    }
    json.endArray();
    spread(json.name("ms_per_pass"), times());
    json.name("tokens_per_second");
    if (emulated()) {
      json.nullValue();
    } else {
      spread(json, tokensPerSecond());
    }
    json.name("bytes_per_pass").value(work.bytes());
    json.name("multiply_adds_per_pass").value(work.multiplyAdds());
    number(json, "gb_per_second", !emulated(), bytesPerSecond() / GIGA);
    number(json, "gflop_per_second", !emulated(), flopPerSecond() / GIGA);
  }

  private void ceilings(JsonWriter json) throws IOException {
    boolean there = !ceilings.isEmpty();
    number(json, "percent_of_read", there, there ? ofRead() : 0);
    number(json, "percent_of_fma", there, there ? ofMultiplyAdds() : 0);
    json.name("ceilings");
    if (!there) {
      json.nullValue();
      return;
    }
    json.beginObject();
    json.name("read_gb_per_second").value(ceiling(Ceilings::readBytes) / GIGA);
    json.name("fma_gflop_per_second").value(2 * ceiling(Ceilings::multiplyAdds) / GIGA);
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
    json.beginObject();
    json.name("median").value(spread.median());
    json.name("p10").value(spread.p10());
    json.name("p90").value(spread.p90());
    json.endObject();
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
