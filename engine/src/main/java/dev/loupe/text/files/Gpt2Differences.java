package dev.loupe.text.files;

import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.weights.io.JsonValue;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** What a tokenizer has that tables of a byte-level BPE with GPT-2's steps can't say. */
public final class Gpt2Differences {
  private static final String GPT2_PATTERN =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

  /** What a tokenizer may have beyond GPT-2's and still spell all of a text. */
  private static final Set<String> KEEPING_ALL =
      Set.of("add_prefix_space", "use_regex false", "ignore_merges", "Digits");

  private Gpt2Differences() {}

  /** Each difference in a few words; empty if there is none. */
  public static List<String> of(TokenizerJson json) {
    List<String> beyond = new ArrayList<>();
    if (json.model != TokenizerJson.Model.BPE || !json.isByteLevel()) {
      beyond.add("a model of the kind " + json.model.type());
      return beyond;
    }
    beyond.addAll(Steps.types(json.normalizer));
    boolean[] splits = {false};
    Steps.forEach(
        json.preTokenizer,
        step -> {
          boolean byteLevel = Steps.type(step).equals("ByteLevel");
          boolean gpt2 = isGpt2Split(step);
          splits[0] |= gpt2 || (byteLevel && JsonValue.flag(step, "use_regex", true));
          if (!byteLevel && !gpt2) {
            beyond.add(Steps.type(step));
          }
          if (JsonValue.flag(step, "add_prefix_space", false)) {
            beyond.add("add_prefix_space");
          }
        });
    if (!splits[0] && json.hasMerges) {
      beyond.add("use_regex false");
    }
    for (String name : List.of("byte_fallback", "ignore_merges")) {
      if (JsonValue.flag(json.settings(), name, false)) {
        beyond.add(name);
      }
    }
    for (AddedToken token : json.added()) {
      if (token.lstrip() || token.rstrip() || token.singleWord()) {
        beyond.add(
            "%s of token \"%s\""
                .formatted(
                    token.lstrip() ? "lstrip" : token.rstrip() ? "rstrip" : "single_word",
                    token.content()));
      }
    }
    return beyond;
  }

  /**
   * Whether every byte of a text is in some token, and each token stands for its own bytes alone:
   * nothing is left out, replaced, or unknown.
   */
  public static boolean spellsAllOfAText(TokenizerJson json) {
    return json.isWithoutMerges() || (json.unknown() < 0 && KEEPING_ALL.containsAll(of(json)));
  }

  /** Whether a step parts words as GPT-2 does, with the pattern written out. */
  private static boolean isGpt2Split(JsonObject step) {
    return Steps.type(step).equals("Split")
        && step.get("pattern") instanceof JsonObject pattern
        && pattern.has("Regex")
        && new JsonPrimitive(GPT2_PATTERN).equals(pattern.get("Regex"))
        && new JsonPrimitive("Isolated").equals(step.get("behavior"))
        && !JsonValue.flag(step, "invert", false);
  }
}
