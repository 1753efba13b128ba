package dev.loupe.text.files;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.JsonValue;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The tokenizer in a model's folder: which of its files counts, and what the settings beside it
 * change. Ids are those of Hugging Face transformers 5; of SentencePiece models, SentencePiece's.
 *
 * <p>Sources: {@code tokenization_auto.py}, {@code tokenization_utils_tokenizers.py} and the
 * classes GPT2Tokenizer, BertTokenizer, T5Tokenizer, LlamaTokenizer and XLNetTokenizer of
 * transformers; {@code bpe_model.cc} and {@code unigram_model.cc} of google/sentencepiece.
 */
public final class TokenizerFolder {
  private static final String VOCAB_TXT = "vocab.txt";
  private static final List<String> SENTENCE_PIECE =
      List.of("spiece.model", "tokenizer.model", "sentencepiece.bpe.model");

  /** Names by which other programs find what OpenAI's files hold. */
  private static final Map<String, String> TODAYS_NAMES =
      Map.of("encoder.json", "vocab.json", "vocab.bpe", "merges.txt");

  private final Path folder;
  private final TokenizerSettings settings;
  private final Findings findings;

  private TokenizerFolder(Path folder, int rows) throws CheckpointException {
    this.folder = folder;
    settings = TokenizerSettings.in(folder);
    findings = new Findings(settings, rows);
  }

  /** OpenAI's two files: under Hugging Face's names, or its own. */
  private static @Nullable List<Path> pair(Path folder) {
    return Stream.of(
            List.of(folder.resolve("vocab.json"), folder.resolve("merges.txt")),
            List.of(folder.resolve("encoder.json"), folder.resolve("vocab.bpe")))
        .filter(pair -> pair.stream().allMatch(Files::exists))
        .findFirst()
        .orElse(null);
  }

  private static @Nullable Path sentencePiece(Path folder) {
    return SENTENCE_PIECE.stream()
        .map(folder::resolve)
        .filter(Files::exists)
        .findFirst()
        .orElse(null);
  }

  /** Whether {@code folder} has a tokenizer's files, sound or not. */
  public static boolean isIn(Path folder) {
    return Files.exists(folder.resolve(TokenizerJson.FILE_NAME))
        || pair(folder) != null
        || Files.exists(folder.resolve(VOCAB_TXT))
        || sentencePiece(folder) != null;
  }

  /**
   * The files of {@code folder} that a tokenizer is read from, by the names under which other
   * programs find them.
   *
   * @throws CheckpointException if one can't be read
   */
  public static Map<String, byte[]> contents(Path folder) throws CheckpointException {
    List<String> names = new ArrayList<>(List.of(TokenizerJson.FILE_NAME, "vocab.json"));
    names.addAll(List.of("merges.txt", "encoder.json", "vocab.bpe", VOCAB_TXT));
    names.addAll(SENTENCE_PIECE);
    names.addAll(
        List.of(TokenizerSettings.FILE_NAME, TokenizerSettings.SPECIALS, TokenizerSettings.ADDED));
    Map<String, byte[]> contents = new LinkedHashMap<>();
    for (String name : names) {
      Path file = folder.resolve(name);
      if (Files.exists(file)) {
        contents.putIfAbsent(TODAYS_NAMES.getOrDefault(name, name), TokenizerReader.bytes(file));
      }
    }
    return contents;
  }

  /**
   * Reads the tokenizer in {@code folder}.
   *
   * @param rows of the model; added tokens beyond them are left out, and a note says so
   * @throws CheckpointException if there is none, or what is there is broken or of a kind that
   *     can't be used
   */
  public static FoundTokenizer read(Path folder, int rows) throws CheckpointException {
    return new TokenizerFolder(folder, rows).read();
  }

  /** What is said of a tokenizer that was read and can't be used. */
  public static CheckpointException unusable(Path source, RuntimeException cause) {
    return new CheckpointException(
        "not a usable tokenizer in %s: %s".formatted(source, cause.getMessage()), cause);
  }

  private FoundTokenizer read() throws CheckpointException {
    TokenizerClass opener = settings.opener();
    Path json = folder.resolve(TokenizerJson.FILE_NAME);
    List<Path> pair = pair(folder);
    Path words = folder.resolve(VOCAB_TXT);
    Path pieces = sentencePiece(folder);
    try {
      if (Files.exists(json)) {
        return ofJson(TokenizerReader.readJson(json));
      }
      if (opener.isForeign()) {
        throw new CheckpointException(
            "%s: its tokenizer is a %s, which can't be used; save it as tokenizer.json"
                .formatted(folder.resolve(settings.classFile()), opener.name()));
      }
      if (pair != null && !(opener.isLikeBert() && Files.exists(words))) {
        return ofPair(TokenizerReader.readPair(pair.getFirst(), pair.getLast()), pair.getFirst());
      }
      if (Files.exists(words) && (opener.isLikeBert() || pieces == null)) {
        return ofWords(TokenizerReader.readVocabTxt(words));
      }
      if (pieces != null) {
        return SentencePieceReader.read(pieces, findings);
      }
    } catch (IllegalArgumentException | IllegalStateException | UnsupportedOperationException e) {
      throw unusable(folder, e);
    }
    throw new CheckpointException(
        ("no tokenizer in %s: looked for tokenizer.json, for vocab.json with merges.txt, for"
                + " encoder.json with vocab.bpe, for vocab.txt, and for spiece.model; copy them"
                + " from where the model came from")
            .formatted(folder));
  }

  private FoundTokenizer ofJson(TokenizerJson json) {
    findings.inForce("vocabulary", "%s, in tokenizer.json".formatted(json.model));
    TokenizerClass opener = settings.opener();
    if (opener.isGpt2()) {
      beGpt2(json);
    } else if (opener.isLikeBert() && json.model == TokenizerJson.Model.WORD_PIECE) {
      BertSteps.giveTo(json, findings);
    } else if (!opener.isOfJson()) {
      findings.note(
          "the tokenizer is read as tokenizer.json says, whatever its class %s does besides"
              .formatted(opener.name()));
    }
    findings.notePrefixSpace(addsPrefixSpace(json.preTokenizer), TokenizerJson.FILE_NAME);
    if (settings.has("add_bos_token") || settings.has("add_eos_token")) {
      findings.note(
          "add_bos_token and add_eos_token in tokenizer_config.json are not followed: where there"
              + " is a tokenizer.json, its post_processor counts");
    }
    if (json.hasDropout) {
      findings.note(
          "the model's dropout in tokenizer.json, which is for training, is not followed");
    }
    NamedTokens.addTo(json, opener.specials(), findings);
    return findings.found(json, "post_processor of tokenizer.json");
  }

  /** GPT-2's class takes from a tokenizer.json only the vocabulary and what goes in front. */
  private void beGpt2(TokenizerJson json) {
    if (json.model != TokenizerJson.Model.BPE || !json.isByteLevel()) {
      findings.note(
          "the tokenizer is read as tokenizer.json says: a %s, not what GPT2Tokenizer is for"
              .formatted(json.model));
      return;
    }
    List<String> dropped = new ArrayList<>(Steps.types(json.normalizer));
    dropped.addAll(
        Steps.types(json.preTokenizer).stream().filter(step -> !step.equals("ByteLevel")).toList());
    if (!dropped.isEmpty()) {
      findings.note(
          ("%s of tokenizer.json are left out, as transformers 5 does for GPT2Tokenizer;"
                  + " tokenizer_class PreTrainedTokenizerFast in tokenizer_config.json keeps them")
              .formatted(dropped));
    }
    boolean space = settings.flag(Findings.PREFIX_SPACE, false);
    boolean own = addsPrefixSpace(json.preTokenizer);
    if (own != space) {
      findings.note(
          ("add_prefix_space is %s in tokenizer.json and %s in tokenizer_config.json, which counts"
                  + " for GPT2Tokenizer")
              .formatted(own, settings.has(Findings.PREFIX_SPACE) ? space : "not given"));
    }
    json.normalizer = JsonNull.INSTANCE;
    json.beByteLevel(space);
    json.set("unk_token", JsonNull.INSTANCE);
    findings.inForce(Findings.PREFIX_SPACE, "%s, by %s".formatted(space, settings.classFile()));
  }

  private static boolean addsPrefixSpace(JsonElement preTokenizer) {
    boolean[] adds = {false};
    Steps.forEach(
        preTokenizer,
        step -> {
          boolean isMetaspace =
              JsonValue.text(step.get("type"), "type of pre_tokenizer").equals("Metaspace");
          adds[0] |=
              isMetaspace
                  ? Spelling.prepends(step)
                  : JsonValue.flag(step, Findings.PREFIX_SPACE, false);
        });
    return adds[0];
  }

  private FoundTokenizer ofPair(TokenizerJson json, Path vocab) {
    findings.inForce("vocabulary", "byte-level BPE, in %s".formatted(vocab.getFileName()));
    boolean space = settings.flag(Findings.PREFIX_SPACE, false);
    json.beByteLevel(space);
    findings.decided(Findings.PREFIX_SPACE, space);
    String end = TokenizerClass.END_OF_TEXT;
    NamedTokens.addTo(json, Map.of("unk", end, "bos", end, "eos", end), findings);
    return findings.found(json, null, end, end);
  }

  private FoundTokenizer ofWords(TokenizerJson json) {
    findings.inForce("vocabulary", "WordPiece, in vocab.txt");
    if (!settings.opener().isLikeBert()) {
      findings.note(
          "vocab.txt is read as BertTokenizer does it; tokenizer_config.json names no such class");
    }
    BertSteps.giveTo(json, findings);
    NamedTokens.addTo(json, TokenizerClass.BERT.specials(), findings);
    return findings.found(json, "BertTokenizer");
  }
}
