package dev.loupe.export;

import com.google.gson.stream.JsonWriter;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.HeadRole;
import dev.loupe.export.page.ContentPolicy;
import dev.loupe.export.page.PageModules;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.Token;
import dev.loupe.text.Count;
import java.io.BufferedOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Locale;
import java.util.Objects;

/**
 * Heat maps as a page for a browser: one file, nothing fetched, and a content security policy that
 * holds it to that. What comes from the model or the text is data: JSON whose angle brackets are
 * escaped, and base64; the page makes text nodes of it.
 *
 * <p>Each map is a block of its own, packed rows as little-endian f32 in base64, {@code q + 1}
 * floats for query q, which the page decodes when it first shows it.
 */
final class HeatMapPage {
  /** What a browser opens without complaint; the file is a third larger. */
  static final long MOST_BYTES = 64_000_000;

  private HeatMapPage() {}

  static void write(MappedRun run, ColourScale colour, Path file) throws IOException {
    requireSize(run);
    String script = PageModules.inline(resource("page.js"));
    String style = resource("page.css");
    String policy = ContentPolicy.of(script, style);
    String[] page = resource("page.html").split("\\{\\{data}}", -1);
    try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(file), 1 << 16)) {
      print(out, page[0].replace("{{policy}}", policy).replace("{{style}}", style));
      print(out, "<script type=\"application/json\" id=\"run\">" + describe(run, colour));
      print(out, "</script>\n");
      blocks("weights", run.maps(), out);
      AttentionMaps scores = run.scores();
      if (scores != null) {
        blocks("scores", scores, out);
      }
      print(out, page[1].replace("{{script}}", script));
    }
  }

  private static void requireSize(MappedRun run) {
    AttentionMaps maps = run.maps();
    long t = maps.tokens();
    long kinds = run.scores() == null ? 1 : 2;
    long bytes = kinds * maps.layers().length * maps.heads().length * (t * (t + 1) / 2) * 4;
    if (bytes > MOST_BYTES) {
      throw new IllegalArgumentException(
          String.format(
              Locale.ROOT,
              "a page of %s x %s over %s would hold %.0f MB of weights%s, and"
                  + " browsers take about %d MB: choose fewer layers or heads, or write"
                  + " .npz",
              Count.of(maps.layers().length, "layer"),
              Count.of(maps.heads().length, "head"),
              Count.of(t, "token"),
              bytes / 1e6,
              kinds == 2 ? " and scores" : "",
              MOST_BYTES / 1_000_000));
    }
  }

  /** What the page says and draws, but for the numbers of the maps. */
  private static String describe(MappedRun run, ColourScale colour) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonWriter json = new JsonWriter(text)) {
      json.setHtmlSafe(true); // < > & as \\u003c ..., so that no token can end the block
      json.beginObject();
      json.name("model").value(run.modelName());
      json.name("dtype").value(run.model().dtype());
      json.name("lengths").value(run.lengths());
      json.name("promptLength").value(run.promptLength());
      json.name("scale").value(colour == ColourScale.LINEAR ? "linear" : "sqrt");
      numbers(json.name("layers"), run.maps().layers());
      numbers(json.name("heads"), run.maps().heads());
      roles(json.name("roles"), run);
      numbers(json.name("start"), strongestHead(run.maps()));
      json.name("scores").value(run.scores() != null);
      json.name("tokens").beginArray();
      for (Token token : run.tokens()) {
        json.beginArray().value(token.label()).value(token.id());
        if (Double.isFinite(token.logprob())) {
          json.value(token.logprob()).value(token.rank());
        }
        json.endArray();
      }
      json.endArray();
      json.name("palettes").beginObject();
      palette(json.name("light"), Palette.SEQUENTIAL_LIGHT, Palette.DIVERGING_LIGHT);
      palette(json.name("dark"), Palette.SEQUENTIAL_DARK, Palette.DIVERGING_DARK);
      json.endObject();
      json.endObject();
    }
    return text.toString();
  }

  /** [layers][heads], in plain words; null for a head without a role. */
  private static void roles(JsonWriter json, MappedRun run) throws IOException {
    json.beginArray();
    for (int layer : run.maps().layers()) {
      json.beginArray();
      for (int head : run.maps().heads()) {
        json.value(run.role(layer, head).map(HeadRole::label).orElse(null));
      }
      json.endArray();
    }
    json.endArray();
  }

  private static void numbers(JsonWriter json, int... numbers) throws IOException {
    json.beginArray();
    for (int number : numbers) {
      json.value(number);
    }
    json.endArray();
  }

  private static void palette(JsonWriter json, Palette sequential, Palette diverging)
      throws IOException {
    json.beginArray();
    for (Palette palette : new Palette[] {sequential, diverging}) {
      json.beginArray();
      for (String stop : palette.stops()) {
        json.value(stop);
      }
      json.endArray();
    }
    json.endArray();
  }

  /**
   * The head to open with, as indices of layer and head: the one whose last row reads a single
   * token most, not counting the first token, which soaks up attention, and the last itself.
   */
  private static int[] strongestHead(AttentionMaps maps) {
    int[] layers = maps.layers();
    int[] heads = maps.heads();
    int[] strongest = {0, 0};
    float most = 0;
    for (int l = 0; l < layers.length; l++) {
      for (int h = 0; h < heads.length; h++) {
        float[] row = maps.row(layers[l], heads[h], maps.tokens() - 1);
        for (int key = 1; key < row.length - 1; key++) {
          if (row[key] > most) {
            most = row[key];
            strongest = new int[] {l, h};
          }
        }
      }
    }
    return strongest;
  }

  private static void blocks(String kind, AttentionMaps maps, OutputStream out) throws IOException {
    int[] layers = maps.layers();
    int[] heads = maps.heads();
    ByteBuffer bytes = ByteBuffer.allocate(4 * maps.tokens()).order(ByteOrder.LITTLE_ENDIAN);
    for (int l = 0; l < layers.length; l++) {
      for (int h = 0; h < heads.length; h++) {
        print(out, "<script type=\"text/plain\" id=\"%s-%d-%d\">".formatted(kind, l, h));
        try (OutputStream base64 = Base64.getEncoder().wrap(new Unclosed(out))) {
          for (int query = 0; query < maps.tokens(); query++) {
            float[] row = maps.row(layers[l], heads[h], query);
            bytes.asFloatBuffer().put(row);
            base64.write(bytes.array(), 0, 4 * row.length);
          }
        }
        print(out, "</script>\n");
      }
    }
  }

  private static String resource(String name) throws IOException {
    try (InputStream in =
        Objects.requireNonNull(HeatMapPage.class.getResourceAsStream(name), name)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private static void print(OutputStream out, String text) throws IOException {
    Writer writer = new OutputStreamWriter(out, StandardCharsets.UTF_8);
    writer.write(text);
    writer.flush();
  }

  /** Lets a base64 stream end its padding without closing the file. */
  private static final class Unclosed extends FilterOutputStream {
    Unclosed(OutputStream out) {
      super(out);
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
      out.write(bytes, offset, length);
    }

    @Override
    public void close() {}
  }
}
