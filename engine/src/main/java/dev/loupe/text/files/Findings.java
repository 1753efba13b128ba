package dev.loupe.text.files;

import dev.loupe.weights.vocabulary.SentencePieceModel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * What comes to light while the tokenizer of a folder is read: the settings in force, and what the
 * user should know.
 */
final class Findings {
  static final String PREFIX_SPACE = "add_prefix_space";
  private static final String CLEAN_UP = "clean_up_tokenization_spaces";
  private static final String CLEAN_UP_BPE =
      CLEAN_UP + "_for_bpe_even_though_it_will_corrupt_output";

  private final TokenizerSettings settings;
  private final int rows;
  private final List<String> notes = new ArrayList<>();
  private final Map<String, String> inForce = new LinkedHashMap<>();

  /**
   * @param settings beside the tokenizer
   * @param rows of the model
   */
  Findings(TokenizerSettings settings, int rows) {
    this.settings = settings;
    this.rows = rows;
  }

  TokenizerSettings settings() {
    return settings;
  }

  TokenizerClass opener() {
    return settings.opener();
  }

  int rows() {
    return rows;
  }

  /** Adds a sentence for the user. */
  void note(String sentence) {
    notes.add(sentence);
  }

  /** Says what is in force, and by which file. */
  void inForce(String name, String value) {
    inForce.put(name, value);
  }

  /** Likewise of a setting of tokenizer_config.json, which may have given it. */
  void decided(String name, Object value) {
    inForce.put(
        name,
        settings.has(name)
            ? "%s, by %s".formatted(value, TokenizerSettings.FILE_NAME)
            : "%s, by default".formatted(value));
  }

  /** Says so where the settings beside a tokenizer contradict what its own file has. */
  void notePrefixSpace(boolean own, String file) {
    if (settings.flag(PREFIX_SPACE, own) != own && !inForce.containsKey(PREFIX_SPACE)) {
      notes.add(
          "%s is %s in %s, which counts, whatever %s says"
              .formatted(PREFIX_SPACE, own, file, TokenizerSettings.FILE_NAME));
    }
  }

  /** Says that tokens belong behind a text and are left out, if there are any. */
  void noteBehind(List<String> tokens) {
    if (!tokens.isEmpty()) {
      notes.add(
          "transformers puts %s behind a text; it is left out, for the model is to go on from there"
              .formatted(String.join(" ", tokens)));
    }
  }

  /** The token in a role if it is wanted, and not left out by the settings. */
  List<String> named(boolean isWanted, String role, String otherwise) {
    String token = isWanted ? settings.token(role, otherwise) : null;
    return token == null ? List.of() : List.of(token);
  }

  /**
   * What was found, where the settings say what belongs in front of a text.
   *
   * @param bos the token that begins a text, unless the settings name another
   * @param eos likewise the one that ends it
   */
  FoundTokenizer found(
      TokenizerJson json, @Nullable SentencePieceModel pieces, String bos, String eos) {
    noteBehind(named(settings.flag("add_eos_token", false), "eos_token", eos));
    return found(
        json,
        pieces,
        named(settings.flag("add_bos_token", false), "bos_token", bos),
        "add_bos_token of tokenizer_config.json");
  }

  /**
   * What was found, where the tokenizer's own file says what belongs in front of a text.
   *
   * @param by what is called the reason for it
   */
  FoundTokenizer found(TokenizerJson json, String by) {
    return found(json, null, PostProcessor.of(json.postProcessor).front(), by);
  }

  private FoundTokenizer found(
      TokenizerJson json, @Nullable SentencePieceModel pieces, List<String> front, String by) {
    dropBeyondRows(json.added());
    if (!front.isEmpty()) {
      inForce.put("in front of a text", "%s, by %s".formatted(String.join(" ", front), by));
    }
    noteBehind(PostProcessor.of(json.postProcessor).behind());
    boolean cleansUp =
        settings.flag(CLEAN_UP, false)
            && (json.model != TokenizerJson.Model.BPE // whose text has its own spaces
                || settings.flag(CLEAN_UP_BPE, false));
    if (cleansUp) {
      decided(CLEAN_UP, true);
    }
    boolean everyPart = !opener().isLlama() || settings.flag("legacy", false);
    for (String name : settings.unfollowed()) {
      notes.add(
          "%s in %s is not followed, as in transformers 5"
              .formatted(name, TokenizerSettings.FILE_NAME));
    }
    return new FoundTokenizer(
        json,
        pieces,
        before(pieces),
        everyPart,
        cleansUp,
        opener(),
        front,
        settings.token("unk_token", opener().isGpt2() ? TokenizerClass.END_OF_TEXT : null),
        List.copyOf(notes),
        Collections.unmodifiableMap(inForce));
  }

  private void dropBeyondRows(List<AddedToken> added) {
    List<AddedToken> beyond = added.stream().filter(token -> token.id() >= rows).toList();
    if (!beyond.isEmpty()) {
      added.removeIf(token -> token.id() >= rows);
      notes.add(
          "%d added tokens have no row in the model and are left out, the first of them \"%s\" (%d)"
              .formatted(beyond.size(), beyond.getFirst().content(), beyond.getFirst().id()));
    }
  }

  private UnaryOperator<String> before(@Nullable SentencePieceModel pieces) {
    return pieces != null && opener().isLikeXlnet()
        ? new XlnetText(
            settings.flag("remove_space", true),
            settings.flag("keep_accents", false),
            settings.flag("do_lower_case", false))
        : UnaryOperator.identity();
  }
}
