package dev.loupe.text.codec;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.text.files.Charsmap;
import dev.loupe.text.files.Spelling;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import dev.loupe.weights.vocabulary.SentencePieceModel.Piece;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Brings a text into the form that SentencePiece's models are trained on: characters replaced by
 * its rules, spaces joined and spelled U+2581, one in front. Pieces that the user defined stay as
 * they are.
 *
 * <p>Source: {@code Normalizer::Normalize} in {@code normalizer.cc} of google/sentencepiece.
 */
final class SentencePieceText {
  private final SentencePieceModel model;
  private final @Nullable Charsmap charsmap;
  private final List<byte[]> userDefined; // the longest first

  /**
   * @throws IllegalArgumentException if the model's rules are damaged
   */
  SentencePieceText(SentencePieceModel model) {
    this.model = model;
    charsmap = model.charsmap().hasRemaining() ? new Charsmap(model.charsmap()) : null;
    userDefined = new ArrayList<>();
    for (Piece piece : model.pieces()) {
      if (piece.type() == SentencePieceModel.Type.USER_DEFINED) {
        userDefined.add(piece.text().getBytes(UTF_8));
      }
    }
    userDefined.sort(Comparator.comparingInt((byte[] piece) -> piece.length).reversed());
  }

  /** What comes next: so many bytes of the text, and what is written for them. */
  private Charsmap.Match next(byte[] text, int at) {
    for (byte[] piece : userDefined) {
      if (at + piece.length <= text.length
          && Arrays.equals(text, at, at + piece.length, piece, 0, piece.length)) {
        return new Charsmap.Match(piece.length, new String(piece, UTF_8));
      }
    }
    Charsmap.Match rule = charsmap == null ? null : charsmap.longest(text, at);
    if (rule != null) {
      return rule;
    }
    int length = Math.abs(Utf8.next(text, at));
    return new Charsmap.Match(length, new String(text, at, length, UTF_8));
  }

  /**
   * The text in that form; empty if nothing is left of it.
   *
   * @param isBegin whether it begins here, so that a space belongs in front
   */
  String normalize(String text, boolean isBegin) {
    byte[] utf8 = text.getBytes(UTF_8);
    String space = model.escapeSpaces() ? Spelling.SPACE : " ";
    int at = 0;
    if (model.removeSpaces()) {
      while (at < utf8.length && next(utf8, at).replacement().equals(" ")) {
        at += next(utf8, at).length();
      }
    }
    if (at == utf8.length) {
      return "";
    }
    StringBuilder out = new StringBuilder();
    boolean dummy = model.dummyPrefix() && isBegin;
    if (dummy && !model.spaceAsSuffix()) {
      out.append(space);
    }
    boolean afterSpace = model.removeSpaces();
    while (at < utf8.length) {
      Charsmap.Match match = next(utf8, at);
      String part = match.replacement();
      while (afterSpace && part.startsWith(" ")) {
        part = part.substring(1);
      }
      if (!part.isEmpty()) {
        out.append(part.replace(" ", space));
        afterSpace = part.endsWith(" ");
      }
      at += match.length();
      afterSpace &= model.removeSpaces();
    }
    if (model.removeSpaces()) {
      while (out.toString().endsWith(space)) {
        out.setLength(out.length() - space.length());
      }
    }
    if (dummy && model.spaceAsSuffix()) {
      out.append(space);
    }
    return out.toString();
  }
}
