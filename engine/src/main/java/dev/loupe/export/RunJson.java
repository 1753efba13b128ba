package dev.loupe.export;

import com.google.gson.stream.JsonWriter;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionRollout;
import dev.loupe.attention.AttentionStatistics;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.model.ModelInfo;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.config.Gpt2Config;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A run as one JSON object on one line: schema {@code loupe/1}. What is not there is null, never
 * NaN.
 */
public final class RunJson {
  private final Generation run;
  private final JsonWriter json;

  private RunJson(Generation run, Writer out) {
    this.run = run;
    this.json = new JsonWriter(out);
    this.json.setHtmlSafe(false);
  }

  /**
   * Writes {@code run} with the shape of its maps but not their weights, and a line end. The writer
   * stays open.
   *
   * @param mapsFile where the maps were written, as the user named it
   */
  public static void write(Generation run, Optional<String> mapsFile, Writer out)
      throws IOException {
    new RunJson(run, out).object(mapsFile.orElse(null), null, false);
    out.write('\n');
    out.flush();
  }

  /** The same object with the weights in {@code attention}: [layer][head][query][0..query]. */
  static void writeWithMaps(MappedRun run, ColourScale colour, Path file) throws IOException {
    try (Writer out = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
      new RunJson(run.run(), out).object(null, run, false);
      out.write('\n');
    }
  }

  /** The same object with the numbers in {@code stats}. */
  static void writeWithStatistics(Generation run, Path file) throws IOException {
    try (Writer out = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
      new RunJson(run, out).object(null, null, true);
      out.write('\n');
    }
  }

  private void object(
      @Nullable String mapsFile, @Nullable MappedRun weights, boolean withStatistics)
      throws IOException {
    json.beginObject();
    json.name("schema").value("loupe/1");
    json.name("text").value(run.text());
    json.name("prompt_len").value(run.promptLength());
    model(json, run.model());
    generation();
    tokens();
    attention(mapsFile, weights);
    if (withStatistics) {
      statistics(run.statistics().orElseThrow());
      if (run.rollout().isPresent()) {
        rollout(run.rollout().get());
      }
    }
    timing();
    json.endObject();
    json.flush();
  }

  static void model(JsonWriter json, ModelInfo model) throws IOException {
    Gpt2Config config = model.config();
    json.name("model").beginObject();
    json.name("source").value(model.source());
    json.name("sha256").value(model.sha256().orElse(null));
    json.name("n_layer").value(config.nLayer());
    json.name("n_head").value(config.nHead());
    json.name("n_embd").value(config.nEmbd());
    json.name("n_ctx").value(config.nPositions());
    json.name("activation").value(config.activation().configName());
    json.name("dtype").value(model.dtype());
    json.endObject();
  }

  private void generation() throws IOException {
    Sampling sampling = run.sampling();
    json.name("generation").beginObject();
    json.name("strategy").value(sampling.isGreedy() ? "greedy" : "sample");
    json.name("sampling").beginObject();
    json.name("temperature").value(sampling.temperature());
    json.name("top_k").value(sampling.topK());
    json.name("top_p").value(sampling.topP());
    json.name("min_p").value(sampling.minP());
    json.name("repetition_penalty").value(sampling.repetitionPenalty());
    json.name("presence_penalty").value(sampling.presencePenalty());
    json.name("frequency_penalty").value(sampling.frequencyPenalty());
    json.endObject();
    json.name("seed").value(sampling.seed());
    json.name("sample").value(run.sample());
    json.name("backend").value(run.model().backend());
    json.name("device").value(run.model().device());
    json.name("finish_reason").value(run.finish().name().toLowerCase(Locale.ROOT));
    json.name("cropped").value(run.cropped());
    json.endObject();
  }

  private void tokens() throws IOException {
    json.name("tokens").beginArray();
    for (Token token : run.tokens()) {
      json.beginObject();
      json.name("id").value(token.id());
      json.name("raw").value(token.raw());
      json.name("label").value(token.label());
      json.name("bytes_hex").value(token.bytes());
      json.name("char_span").beginArray();
      json.value(token.charStart()).value(token.charEnd()).endArray();
      json.name("special").value(token.special());
      json.name("generated").value(token.generated());
      json.name("logprob");
      number(token.logprob());
      json.name("rank").value(token.rank() < 0 ? null : Integer.valueOf(token.rank()));
      json.name("top").beginArray();
      for (Token.Candidate candidate : token.top()) {
        json.beginObject();
        json.name("id").value(candidate.id());
        json.name("logprob");
        number(candidate.logprob());
        json.endObject();
      }
      json.endArray();
      json.endObject();
    }
    json.endArray();
  }

  private void attention(@Nullable String file, @Nullable MappedRun weights) throws IOException {
    json.name("attention");
    if (run.maps().isEmpty()) {
      json.nullValue();
      return;
    }
    AttentionMaps maps = run.attention();
    json.beginObject();
    json.name("layers");
    ints(maps.layers());
    json.name("heads");
    ints(maps.heads());
    json.name("shape");
    ints(maps.layers().length, maps.heads().length, maps.tokens(), maps.tokens());
    json.name("axes").beginArray();
    json.value("layer").value("head").value("query").value("key").endArray();
    json.name("file").value(file);
    if (weights != null) {
      json.name("weights");
      rows(weights.maps());
      AttentionMaps scores = weights.scores();
      if (scores != null) {
        json.name("scores");
        rows(scores);
      }
    }
    json.endObject();
  }

  private void rows(AttentionMaps maps) throws IOException {
    json.beginArray();
    for (int layer : maps.layers()) {
      json.beginArray();
      for (int head : maps.heads()) {
        json.beginArray();
        for (int query = 0; query < maps.tokens(); query++) {
          json.beginArray();
          for (float weight : maps.row(layer, head, query)) {
            number(weight);
          }
          json.endArray();
        }
        json.endArray();
      }
      json.endArray();
    }
    json.endArray();
  }

  /**
   * One object for each layer and head, with a number, or a list, for each query; and the scores
   * and edges of the head.
   */
  private void statistics(AttentionStatistics all) throws IOException {
    json.name("stats").beginArray();
    for (int layer : all.layers()) {
      for (int head : all.heads()) {
        json.beginObject();
        json.name("layer").value(layer);
        json.name("head").value(head);
        json.name("entropy").beginArray();
        for (int query = 0; query < all.tokens(); query++) {
          number(all.entropy(layer, head, query));
        }
        json.endArray();
        json.name("mean_distance").beginArray();
        for (int query = 0; query < all.tokens(); query++) {
          number(all.meanDistance(layer, head, query));
        }
        json.endArray();
        json.name("top").beginArray();
        for (int query = 0; query < all.tokens(); query++) {
          top(all.topKeys(layer, head, query), all.topWeights(layer, head, query));
        }
        json.endArray();
        if (run.headStatistics().isPresent()) {
          head(json, run.headStatistics().get(), layer, head);
        }
        json.endObject();
      }
    }
    json.endArray();
  }

  /** {@code scores} and {@code edges} of one head, as names of an open object. */
  static void head(JsonWriter json, HeadStatistics all, int layer, int head) throws IOException {
    json.name("scores").beginObject();
    for (HeadScore score : StatisticsExport.scores(all)) {
      double value = all.score(score, layer, head);
      json.name(score.key()).value(Double.isFinite(value) ? Float.valueOf((float) value) : null);
    }
    json.endObject();
    edges(json, "edges", all.edges(layer, head, false));
    edges(json, "edges_without_first", all.edges(layer, head, true));
    if (all.hasValueNorms()) {
      edges(json, "edges_by_norm", all.edgesByNorm(layer, head));
    }
  }

  private static void edges(JsonWriter json, String name, List<HeadStatistics.Edge> edges)
      throws IOException {
    json.name(name).beginArray();
    for (HeadStatistics.Edge edge : edges) {
      json.beginObject();
      json.name("query").value(edge.query());
      json.name("key").value(edge.key());
      json.name("weight").value(edge.weight());
      json.endObject();
    }
    json.endArray();
  }

  private void rollout(AttentionRollout rollout) throws IOException {
    json.name("rollout").beginArray();
    for (int query = 0; query < rollout.tokens(); query++) {
      json.beginArray();
      for (float part : rollout.row(query)) {
        number(part);
      }
      json.endArray();
    }
    json.endArray();
  }

  private void top(int[] keys, float[] weights) throws IOException {
    json.beginArray();
    for (int i = 0; i < keys.length; i++) {
      json.beginObject();
      json.name("key").value(keys[i]);
      json.name("weight");
      number(weights[i]);
      json.endObject();
    }
    json.endArray();
  }

  private void timing() throws IOException {
    Generation.Timing timing = run.timing();
    json.name("timing").beginObject();
    json.name("load_ms");
    number(run.model().loadMs());
    json.name("prefill_ms");
    number(timing.prefillMs());
    json.name("prefill_tokens").value(timing.prefillTokens());
    json.name("decode_ms");
    number(timing.decodeMs());
    json.name("decode_tokens").value(timing.decodeTokens());
    json.endObject();
  }

  private void ints(int... values) throws IOException {
    json.beginArray();
    for (int value : values) {
      json.value(value);
    }
    json.endArray();
  }

  private void number(float value) throws IOException {
    if (Float.isFinite(value)) {
      json.value(value); // the shortest decimal that reads back as this float
    } else {
      json.nullValue();
    }
  }

  private void number(double value) throws IOException {
    if (Double.isFinite(value)) {
      json.value(value);
    } else {
      json.nullValue();
    }
  }
}
