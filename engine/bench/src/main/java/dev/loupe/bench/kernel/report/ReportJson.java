package dev.loupe.bench.kernel.report;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import com.google.gson.stream.JsonWriter;
import dev.loupe.bench.Machine;
import dev.loupe.bench.Spread;
import dev.loupe.bench.kernel.Candidate;
import dev.loupe.bench.kernel.Device.Roofline;
import dev.loupe.bench.kernel.KernelComparison;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.bench.kernel.Operation;
import dev.loupe.bench.kernel.Problem;
import dev.loupe.bench.kernel.Shape;
import dev.loupe.ops.Precision;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/** Reports as JSON and back. */
final class ReportJson {
  private static final String SCHEMA = "loupe-kernels/1";
  private static final double GIGA = 1e9;

  private final KernelReport report;
  private final JsonWriter json;

  private ReportJson(KernelReport report, JsonWriter json) {
    this.report = report;
    this.json = json;
  }

  static String write(KernelReport report) {
    StringWriter out = new StringWriter();
    try (JsonWriter json = new JsonWriter(out)) {
      json.setHtmlSafe(false);
      new ReportJson(report, json).all();
    } catch (IOException e) {
      throw new AssertionError("a StringWriter takes all", e);
    }
    return out.toString();
  }

  private void all() throws IOException {
    json.beginObject();
    json.name("schema").value(SCHEMA);
    json.name("started").value(report.started().toString());
    json.name("interrupted").value(report.interrupted());
    json.name("machine").beginObject();
    json.name("cpu").value(report.machine().cpu());
    json.name("processors").value(report.machine().processors());
    json.name("threads").value(report.threads());
    json.name("vector_bits").value(report.machine().vectorBits());
    json.name("java").value(report.machine().java());
    number("load_before", report.machine().load() >= 0 ? report.machine().load() : Double.NaN);
    json.endObject();
    json.name("backend").value(report.backend());
    json.name("device").value(report.device());
    json.name("emulated").value(report.emulated());
    json.name("settings").beginObject();
    json.name("samples").value(report.settings().samples());
    json.name("seconds").value(report.settings().seconds());
    json.endObject();
    json.name("results").beginArray();
    for (Measurement each : report.measurements()) {
      result(each);
    }
    json.endArray();
    against();
    json.endObject();
  }

  private void result(Measurement m) throws IOException {
    json.beginObject();
    json.name("operation").value(m.shape().operation().label());
    shape(m.shape());
    json.name("variant").value(m.variant());
    json.name("idea").value(m.idea());
    json.name("dtype").value(Group.small(m.precision()));
    json.name("status").value(Group.small(m.status()));
    json.name("why").value(m.why().isEmpty() ? null : m.why());
    number("error", m.error());
    json.name("us").beginArray();
    for (double time : m.microseconds()) {
      json.value(time);
    }
    json.endArray();
    boolean ok = m.status() == Status.OK;
    Spread times = ok ? m.times() : new Spread(Double.NaN, Double.NaN, Double.NaN);
    number("median", times.median());
    number("p10", times.p10());
    number("p90", times.p90());
    number("bytes", m.work().bytes());
    number("operations", m.work().operations());
    boolean rates = ok && !report.emulated();
    number("gb_per_s", rates ? m.bytesPerSecond() / GIGA : Double.NaN);
    number("gflop_per_s", rates ? m.operationsPerSecond() / GIGA : Double.NaN);
    json.name("roofline");
    if (Group.hasRoofline(m)) {
      json.beginObject();
      json.name("gb_per_s").value(giga(m.roofline().bytesPerSecond()));
      json.name("gflop_per_s").value(giga(m.roofline().operationsPerSecond()));
      json.endObject();
    } else {
      json.nullValue();
    }
    number(
        "percent_of_roofline", rates && Group.hasRoofline(m) ? 100 * m.ofRoofline() : Double.NaN);
    resources(m.resources());
    json.endObject();
  }

  /** Decimal, so that {@link #roofline} reads the very same number. */
  private static BigDecimal giga(double value) {
    return BigDecimal.valueOf(value).movePointLeft(9);
  }

  private void shape(Shape shape) throws IOException {
    json.name("shape").beginObject();
    for (String axis : shape.operation().axes()) {
      json.name(axis).value(shape.size(axis));
    }
    json.endObject();
  }

  private void resources(Candidate.@Nullable Resources resources) throws IOException {
    json.name("resources");
    if (resources == null) {
      json.nullValue();
      return;
    }
    json.beginObject();
    json.name("registers").value(resources.registers());
    json.name("shared_bytes").value(resources.sharedBytes());
    json.name("threads").value(resources.threads());
    number("occupancy", resources.occupancy());
    json.endObject();
  }

  private void against() throws IOException {
    json.name("against");
    KernelReport before = report.before();
    if (before == null) {
      json.nullValue();
      return;
    }
    Against against = new Against(report, before);
    json.beginObject();
    json.name("started").value(before.started().toString());
    json.name("differences").beginArray();
    for (String difference : against.differences()) {
      json.value(difference);
    }
    json.endArray();
    json.name("results").beginArray();
    for (Against.Row row : against.rows()) {
      json.beginObject();
      json.name("operation").value(row.now().shape().operation().label());
      shape(row.now().shape());
      json.name("variant").value(row.now().variant());
      json.name("dtype").value(Group.small(row.now().precision()));
      number("speed", row.speed());
      json.name("verdict").value(Group.small(row.verdict()));
      json.name("words").value(row.words());
      json.endObject();
    }
    json.endArray();
    json.endObject();
  }

  private void number(String name, double value) throws IOException {
    json.name(name);
    if (Double.isFinite(value)) {
      json.value(value);
    } else {
      json.nullValue();
    }
  }

  static KernelReport parse(String text) {
    try {
      JsonReader in = new JsonReader(new StringReader(text));
      JsonObject all = JsonValue.object(StrictJson.tree(in, "it", StrictJson.MOST_VALUES), "it");
      if (in.peek() != JsonToken.END_DOCUMENT) {
        throw new IllegalArgumentException("it goes on after its JSON");
      }
      JsonElement schema = all.get("schema");
      if (schema == null || !schema.isJsonPrimitive() || !schema.getAsString().equals(SCHEMA)) {
        throw new IllegalArgumentException("its schema is %s".formatted(schema));
      }
      return report(all);
    } catch (IOException
        | RuntimeException e) { // of Gson, Instant, the records: all say what they miss
      String reason = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      throw new IllegalArgumentException(
          "this is no report of a kernel comparison, schema %s: %s".formatted(SCHEMA, reason), e);
    }
  }

  private static KernelReport report(JsonObject all) {
    JsonObject machine = get(all, "machine").getAsJsonObject();
    JsonObject settings = get(all, "settings").getAsJsonObject();
    double load = number(machine, "load_before");
    List<Measurement> measurements = new ArrayList<>();
    for (JsonElement each : get(all, "results").getAsJsonArray()) {
      measurements.add(measurement(each.getAsJsonObject()));
    }
    return new KernelReport(
        Instant.parse(text(all, "started")),
        get(all, "interrupted").getAsBoolean(),
        new Machine(
            text(machine, "cpu"),
            JsonValue.whole(get(machine, "processors"), "processors"),
            JsonValue.whole(get(machine, "vector_bits"), "vector_bits"),
            text(machine, "java"),
            Double.isNaN(load) ? -1 : load),
        JsonValue.whole(get(machine, "threads"), "threads"),
        text(all, "backend"),
        text(all, "device"),
        get(all, "emulated").getAsBoolean(),
        new KernelComparison.Settings(
            JsonValue.whole(get(settings, "samples"), "samples"),
            get(settings, "seconds").getAsDouble()),
        measurements,
        null);
  }

  private static Measurement measurement(JsonObject result) {
    String label = text(result, "operation");
    Operation operation =
        Operation.labelled(label)
            .orElseThrow(() -> new IllegalArgumentException("no operation '%s'".formatted(label)));
    JsonObject sizes = get(result, "shape").getAsJsonObject();
    List<Double> times = new ArrayList<>();
    for (JsonElement time : get(result, "us").getAsJsonArray()) {
      if (!(time.getAsDouble() > 0) || !Double.isFinite(time.getAsDouble())) {
        throw new IllegalArgumentException("a time of %s us".formatted(time));
      }
      times.add(time.getAsDouble());
    }
    JsonElement ceilings = get(result, "roofline");
    JsonElement resources = get(result, "resources");
    return new Measurement(
        new Shape(
            operation,
            operation.axes().stream()
                .map(axis -> JsonValue.whole(get(sizes, axis), axis))
                .toList()),
        text(result, "variant"),
        text(result, "idea"),
        Precision.valueOf(text(result, "dtype").toUpperCase(Locale.ROOT)),
        Status.valueOf(text(result, "status").toUpperCase(Locale.ROOT).replace(' ', '_')),
        get(result, "why").isJsonNull() ? "" : text(result, "why"),
        number(result, "error"),
        times,
        new Problem.Work(
            get(result, "bytes").getAsDouble(), get(result, "operations").getAsDouble()),
        ceilings.isJsonNull() ? new Roofline(Double.NaN, Double.NaN) : roofline(ceilings),
        resources.isJsonNull() ? null : resources(resources.getAsJsonObject()));
  }

  private static Roofline roofline(JsonElement json) {
    JsonObject ceilings = json.getAsJsonObject();
    return new Roofline(
        get(ceilings, "gb_per_s").getAsBigDecimal().movePointRight(9).doubleValue(),
        get(ceilings, "gflop_per_s").getAsBigDecimal().movePointRight(9).doubleValue());
  }

  private static Candidate.Resources resources(JsonObject json) {
    return new Candidate.Resources(
        JsonValue.whole(get(json, "registers"), "registers"),
        JsonValue.whole(get(json, "shared_bytes"), "shared_bytes"),
        JsonValue.whole(get(json, "threads"), "threads"),
        number(json, "occupancy"));
  }

  private static JsonElement get(JsonObject json, String name) {
    JsonElement element = json.get(name);
    if (element == null) {
      throw new IllegalArgumentException("it has no '%s'".formatted(name));
    }
    return element;
  }

  private static String text(JsonObject json, String name) {
    JsonElement element = get(json, name);
    if (!element.isJsonPrimitive()) {
      throw new IllegalArgumentException("'%s' is no text".formatted(name));
    }
    return element.getAsString();
  }

  /** NaN for null. */
  private static double number(JsonObject json, String name) {
    JsonElement element = get(json, name);
    return element instanceof JsonNull ? Double.NaN : element.getAsDouble();
  }
}
