package dev.loupe.text.files;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * The class with which Hugging Face transformers opens a tokenizer, and what that class does by
 * itself.
 *
 * @param name without {@code Fast}; empty if none is named
 */
public record TokenizerClass(String name) {
  /** What GPT-2's class puts around texts where no file names another token. */
  static final String END_OF_TEXT = "<|endoftext|>";

  /** None is named. */
  public static final TokenizerClass NONE = new TokenizerClass("");

  /** What a GPT-2 is opened with when nothing names another class. */
  static final TokenizerClass GPT2 = new TokenizerClass("GPT2Tokenizer");

  /** BERT's own. */
  static final TokenizerClass BERT = new TokenizerClass("BertTokenizer");

  private static final Set<String> LIKE_BERT =
      Set.of("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer");
  private static final Set<String> LIKE_XLNET = Set.of("XLNetTokenizer", "AlbertTokenizer");
  private static final Set<String> OF_JSON =
      Set.of("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend", "");

  /** Classes that change a text in ways of their own before or after their vocabulary sees it. */
  private static final Set<String> OTHERS =
      Set.of(
          "BertJapaneseTokenizer",
          "CpmTokenizer",
          "CpmAntTokenizer",
          "RoFormerTokenizer",
          "EsmTokenizer",
          "BertweetTokenizer",
          "PhobertTokenizer",
          "CTRLTokenizer",
          "OpenAIGPTTokenizer",
          "GPTSw3Tokenizer",
          "ByT5Tokenizer",
          "CanineTokenizer");

  /** The class that a file names, if it does. */
  static TokenizerClass named(@Nullable String name) {
    return name == null
        ? NONE
        : new TokenizerClass(
            name.endsWith("Fast") ? name.substring(0, name.length() - "Fast".length()) : name);
  }

  boolean isGpt2() {
    return equals(GPT2);
  }

  boolean isT5() {
    return name.equals("T5Tokenizer");
  }

  boolean isLlama() {
    return name.equals("LlamaTokenizer");
  }

  boolean isLikeBert() {
    return LIKE_BERT.contains(name);
  }

  boolean isLikeXlnet() {
    return LIKE_XLNET.contains(name);
  }

  /** Whether it does what a tokenizer.json says and nothing else. */
  boolean isOfJson() {
    return OF_JSON.contains(name);
  }

  /** Whether what it does to a text can't be done here. */
  boolean isForeign() {
    return OTHERS.contains(name);
  }

  /** Special tokens that the class has when no file names others, by their roles. */
  Map<String, String> specials() {
    Map<String, String> tokens = new LinkedHashMap<>();
    if (isLikeBert()) {
      tokens.put("unk", "[UNK]");
      tokens.put("sep", "[SEP]");
      tokens.put("pad", "[PAD]");
      tokens.put("cls", "[CLS]");
      tokens.put("mask", "[MASK]");
    } else if (isT5()) {
      tokens.put("eos", "</s>");
      tokens.put("unk", "<unk>");
      tokens.put("pad", "<pad>");
    } else if (isLlama()) {
      tokens.put("unk", "<unk>");
      tokens.put("bos", "<s>");
      tokens.put("eos", "</s>");
    } else if (name.equals("XLNetTokenizer")) {
      tokens.put("bos", "<s>");
      tokens.put("eos", "</s>");
      tokens.put("unk", "<unk>");
      tokens.put("sep", "<sep>");
      tokens.put("pad", "<pad>");
      tokens.put("cls", "<cls>");
      tokens.put("mask", "<mask>");
    } else if (isGpt2()) {
      tokens.put("eos", END_OF_TEXT);
    }
    return tokens;
  }
}
