package dev.loupe.serve.workbench;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.Loupe;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.Token;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.model.ModelInfo;
import dev.loupe.serve.workbench.Runs.Run;
import dev.loupe.weights.config.Gpt2Config;
import java.util.List;
import java.util.Optional;

/** What the page is told of the model and of runs, as JSON. */
final class PageJson {
  private PageJson() {}

  /**
   * The model, and what the page needs to show its maps.
   *
   * @param model what clients call it
   * @param example the run that the page begins with
   */
  static JsonObject info(Loupe loupe, String model, Optional<String> example) {
    ModelInfo info = loupe.info();
    Gpt2Config config = info.config();
    JsonObject json = new JsonObject();
    json.addProperty("model", model);
    json.addProperty("sha256", info.sha256().orElse(null));
    json.addProperty("dtype", info.dtype());
    json.addProperty("backend", info.backend());
    json.addProperty("device", info.device());
    json.addProperty("n_layer", config.nLayer());
    json.addProperty("n_head", config.nHead());
    json.addProperty("n_embd", config.nEmbd());
    json.addProperty("n_ctx", config.nPositions());
    json.addProperty("vocab_size", config.vocabSize());
    json.add(
        "bos",
        config.bosTokenId() < 0 ? JsonNull.INSTANCE : new JsonPrimitive(config.bosTokenId()));
    json.addProperty("text", loupe.tokenizer().whyNoText().isEmpty());
    json.addProperty("threshold", HeadRole.THRESHOLD);
    JsonObject palettes = new JsonObject();
    palettes.add("light", palettes(Palette.SEQUENTIAL_LIGHT, Palette.DIVERGING_LIGHT));
    palettes.add("dark", palettes(Palette.SEQUENTIAL_DARK, Palette.DIVERGING_DARK));
    json.add("palettes", palettes);
    json.addProperty("example", example.orElse(null));
    return json;
  }

  private static JsonArray palettes(Palette... palettes) {
    JsonArray all = new JsonArray();
    for (Palette palette : palettes) {
      JsonArray stops = new JsonArray();
      palette.stops().forEach(stops::add);
      all.add(stops);
    }
    return all;
  }

  /** What each head does on repeated tokens, and the role that this gives it. */
  static JsonObject heads(HeadSurvey survey, Loupe loupe) {
    Gpt2Config config = loupe.info().config();
    JsonObject repeated = new JsonObject();
    repeated.add("ids", numbers(HeadSurvey.sequences(config, loupe.tokenizer()).getFirst()));
    repeated.addProperty("length", survey.onRepeated().repeated());
    JsonArray heads = new JsonArray();
    for (int layer = 0; layer < config.nLayer(); layer++) {
      for (int head = 0; head < config.nHead(); head++) {
        JsonObject one = new JsonObject();
        one.addProperty("layer", layer);
        one.addProperty("head", head);
        one.addProperty("role", survey.role(layer, head).map(HeadRole::key).orElse(null));
        JsonObject scores = new JsonObject();
        for (HeadScore score : HeadScore.values()) {
          if (!score.needsValueNorms()) {
            scores.add(score.key(), number(survey.onRepeated().score(score, layer, head)));
          }
        }
        one.add("scores", scores);
        heads.add(one);
      }
    }
    JsonObject json = new JsonObject();
    json.add("repeated", repeated);
    json.add("heads", heads);
    return json;
  }

  /** A run: how its text is read, and its tokens with what the model said of them. */
  static JsonObject run(Run run) {
    JsonObject json = run.spec().json();
    json.addProperty("n_head", run.cache().heads());
    json.addProperty("id", run.id());
    JsonArray tokens = new JsonArray();
    for (Token token : run.cache().tokens()) {
      tokens.add(token(token));
    }
    json.add("tokens", tokens);
    return json;
  }

  private static JsonObject token(Token token) {
    JsonObject json = new JsonObject();
    json.addProperty("id", token.id());
    json.addProperty("label", token.label());
    json.addProperty("bytes", token.bytes());
    json.addProperty("special", token.special());
    json.addProperty("generated", token.generated());
    json.add("logprob", number(token.logprob()));
    json.add("rank", token.rank() < 0 ? JsonNull.INSTANCE : new JsonPrimitive(token.rank()));
    JsonArray top = new JsonArray();
    for (Token.Candidate candidate : token.top()) {
      JsonObject one = new JsonObject();
      one.addProperty("id", candidate.id());
      one.addProperty("label", candidate.label());
      one.add("logprob", number(candidate.logprob()));
      top.add(one);
    }
    json.add("top", top);
    return json;
  }

  /**
   * The scores of each head on a text.
   *
   * @param tokens of the text
   */
  static JsonObject statistics(HeadStatistics all, int tokens) {
    JsonObject scores = new JsonObject();
    for (HeadScore score : HeadScore.values()) {
      if (score.needsValueNorms()) {
        continue;
      }
      JsonArray layers = new JsonArray();
      for (int layer : all.layers()) {
        JsonArray heads = new JsonArray();
        for (int head : all.heads()) {
          heads.add(number(all.score(score, layer, head)));
        }
        layers.add(heads);
      }
      scores.add(score.key(), layers);
    }
    JsonObject json = new JsonObject();
    json.addProperty("tokens", tokens);
    json.add("scores", scores);
    return json;
  }

  /** What differs between two runs: for each token, and for each head where both have its map. */
  static JsonObject comparison(Comparison comparison) {
    JsonArray divergences = new JsonArray();
    comparison.divergences().forEach(d -> divergences.add(number(d)));
    JsonArray variation = new JsonArray();
    for (List<Double> layer : comparison.maps()) {
      JsonArray heads = new JsonArray();
      layer.forEach(head -> heads.add(number(head)));
      variation.add(heads);
    }
    JsonObject json = new JsonObject();
    json.add("divergences", divergences);
    json.add("variation", variation.isEmpty() ? JsonNull.INSTANCE : variation);
    return json;
  }

  private static JsonArray numbers(int[] values) {
    JsonArray numbers = new JsonArray();
    for (int value : values) {
      numbers.add(value);
    }
    return numbers;
  }

  /** What is no number is null. */
  private static JsonElement number(double value) {
    return Double.isFinite(value) ? new JsonPrimitive((float) value) : JsonNull.INSTANCE;
  }
}
