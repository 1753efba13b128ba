package dev.loupe.text.files;

import com.google.gson.JsonPrimitive;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import dev.loupe.weights.vocabulary.SentencePieceModel.Piece;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/** Makes a tokenizer of a SentencePiece model, and of what its class adds to that. */
final class SentencePieceReader {
  private static final Pattern NUMBER = Pattern.compile("[0-9],$");

  private final SentencePieceModel model;
  private final String file;
  private final Findings findings;
  private final TokenizerClass opener;
  private final TokenizerJson json = new TokenizerJson();

  private SentencePieceReader(Path file, Findings findings) throws CheckpointException {
    model = SentencePieceModel.read(file);
    this.file = String.valueOf(file.getFileName());
    this.findings = findings;
    opener = findings.opener();
  }

  /**
   * Reads {@code file}.
   *
   * @throws CheckpointException if it is broken
   * @throws IllegalArgumentException if it can't be used; the message says why
   */
  static FoundTokenizer read(Path file, Findings findings) throws CheckpointException {
    return new SentencePieceReader(file, findings).read();
  }

  private FoundTokenizer read() {
    findings.inForce("vocabulary", "SentencePiece %s, in %s".formatted(model.algorithm(), file));
    takePieces();
    takeAdded();
    if (opener.isLikeXlnet()) {
      TokenizerSettings settings = findings.settings();
      findings.decided("do_lower_case", settings.flag("do_lower_case", false));
      findings.decided("keep_accents", settings.flag("keep_accents", false));
      findings.decided("remove_space", settings.flag("remove_space", true));
    }
    NamedTokens.addTo(json, opener.specials(), findings);
    note();
    return findings.found(json, model, "<s>", "</s>");
  }

  private void takePieces() {
    Set<String> known = new HashSet<>();
    for (Piece piece : model.pieces()) {
      if (!known.add(piece.text())) {
        throw new IllegalArgumentException("piece \"%s\" appears twice".formatted(piece.text()));
      }
    }
    switch (model.algorithm()) {
      case UNIGRAM -> {
        json.model = TokenizerJson.Model.UNIGRAM;
        model.pieces().forEach(piece -> json.addPiece(piece.text(), score(piece)));
        json.set("unk_id", new JsonPrimitive(model.unknown()));
      }
      case BPE -> {
        for (int id = 0; id < model.pieces().size(); id++) {
          json.addToken(model.pieces().get(id).text(), id);
        }
        merges().forEach(json::addMerge);
        json.set("unk_token", new JsonPrimitive(model.pieces().get(model.unknown()).text()));
        json.set("fuse_unk", new JsonPrimitive(true));
        json.set("byte_fallback", new JsonPrimitive(model.byteFallback()));
      }
      default ->
          throw new IllegalArgumentException(
              "%s is a SentencePiece model of the kind %s; UNIGRAM and BPE can be used"
                  .formatted(file, model.algorithm()));
    }
  }

  /** XLNet all but forbids pieces that end in a digit and a comma. */
  private double score(Piece piece) {
    boolean isNumber = opener.isLikeXlnet() && NUMBER.matcher(piece.text()).find();
    return isNumber ? (double) piece.score() - 100 : piece.score();
  }

  /**
   * SentencePiece joins the two neighbours whose joined piece has the highest score: the same as
   * merges in the order of the scores.
   */
  private List<String> merges() {
    Map<String, Piece> normal = new HashMap<>();
    for (Piece piece : model.pieces()) {
      if (piece.type() == SentencePieceModel.Type.NORMAL) {
        normal.put(piece.text(), piece);
      }
    }
    List<Piece> ordered =
        model.pieces().stream()
            .filter(piece -> piece.type() == SentencePieceModel.Type.NORMAL)
            .sorted(Comparator.comparing(Piece::score, Comparator.reverseOrder()))
            .toList();
    List<String> merges = new ArrayList<>();
    for (Piece piece : ordered) {
      String text = piece.text();
      for (int at = 1; at < text.length(); at++) {
        String left = text.substring(0, at);
        String right = text.substring(at);
        if (normal.containsKey(left) && normal.containsKey(right)) {
          merges.add(left + " " + right);
        }
      }
    }
    return merges;
  }

  private void takeAdded() {
    for (int id = 0; id < model.pieces().size(); id++) {
      Piece piece = model.pieces().get(id);
      if (piece.type() == SentencePieceModel.Type.CONTROL
          || piece.type() == SentencePieceModel.Type.USER_DEFINED) {
        boolean special = piece.type() == SentencePieceModel.Type.CONTROL;
        json.added().add(AddedToken.plain(piece.text(), id, special));
      }
    }
    if (opener.isT5()) {
      addExtraIds();
    }
  }

  /** T5 numbers its sentinels backwards behind the pieces, as far as the model has rows. */
  private void addExtraIds() {
    int extra = findings.settings().whole("extra_ids", 100);
    if (extra > Vocabulary.MOST_TOKENS) {
      throw new IllegalArgumentException(
          "extra_ids is %d, more than %d".formatted(extra, Vocabulary.MOST_TOKENS));
    }
    for (int i = extra - 1; i >= 0; i--) {
      int id = model.pieces().size() + extra - 1 - i;
      if (id < findings.rows()) {
        json.added().add(AddedToken.plain("<extra_id_%d>".formatted(i), id, true));
      }
    }
  }

  private void note() {
    if (opener.isLlama() && !findings.settings().has("add_bos_token")) {
      findings.note(
          "tokenizer_config.json has no add_bos_token: nothing is put in front of a text, as in"
              + " transformers 5; transformers 4 put <s> there");
    }
    findings.notePrefixSpace(model.dummyPrefix(), file);
    if (model.denormalizes()) {
      findings.note(
          "%s has rules for text that is shown (denormalizer_spec), which are not followed"
              .formatted(file));
    }
    if (opener.isT5()) {
      findings.noteBehind(findings.named(true, "eos_token", "</s>"));
    } else if (opener.isLikeXlnet()) {
      findings.noteBehind(findings.named(true, "sep_token", "<sep>"));
    }
  }
}
