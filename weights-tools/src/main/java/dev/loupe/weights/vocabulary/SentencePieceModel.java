package dev.loupe.weights.vocabulary;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.Protobuf;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A SentencePiece model, {@code spiece.model} or {@code tokenizer.model}: a protobuf message of
 * pieces and settings.
 *
 * <p>Source: {@code sentencepiece_model.proto} of google/sentencepiece.
 *
 * @param pieces by id
 * @param algorithm how a text is cut into pieces
 * @param unknown id of the piece for what has no other
 * @param unknownText what that piece is shown as
 * @param byteFallback whether what has no piece is spelled in pieces of one byte
 * @param charsmap the compiled rules that replace characters; empty if there are none
 * @param dummyPrefix whether a text gets a space in front
 * @param removeSpaces whether spaces at both ends go, and of several together all but one
 * @param spaceAsSuffix whether a space belongs to the piece before it
 * @param escapeSpaces whether a space is spelled U+2581 in the pieces
 * @param denormalizes whether it has rules of its own for text that is shown
 */
public record SentencePieceModel(
    List<Piece> pieces,
    Algorithm algorithm,
    int unknown,
    String unknownText,
    boolean byteFallback,
    ByteBuffer charsmap,
    boolean dummyPrefix,
    boolean removeSpaces,
    boolean spaceAsSuffix,
    boolean escapeSpaces,
    boolean denormalizes) {
  private static final int MAX_BYTES = 128 << 20;

  /** How a text is cut into pieces. */
  public enum Algorithm {
    UNIGRAM,
    BPE,
    WORD,
    CHAR
  }

  /** What a piece is for; in the order of the format's numbers, which begin with 1. */
  public enum Type {
    NORMAL,
    UNKNOWN,
    CONTROL,
    USER_DEFINED,
    UNUSED,
    BYTE
  }

  /** One entry; a higher score is more likely. */
  public record Piece(String text, float score, Type type) {}

  public SentencePieceModel {
    pieces = List.copyOf(pieces);
    charsmap = charsmap.asReadOnlyBuffer();
  }

  /** The settings while they are read, with the format's defaults. */
  private static final class Settings {
    private final List<Piece> pieces = new ArrayList<>();
    private Algorithm algorithm = Algorithm.UNIGRAM;
    private int unknown;
    private String unknownText = " \u2047 ";
    private boolean byteFallback;
    private boolean spaceAsSuffix;
    private byte[] charsmap = {};
    private boolean dummyPrefix = true;
    private boolean removeSpaces = true;
    private boolean escapeSpaces = true;
    private boolean denormalizes;
  }

  /**
   * Reads a file.
   *
   * @throws CheckpointException if it is damaged, or no such model
   */
  public static SentencePieceModel read(Path path) throws CheckpointException {
    InputFile file = InputFile.read(path, MAX_BYTES, "a tokenizer");
    Settings settings = new Settings();
    Protobuf in = new Protobuf(file, "the SentencePiece model", 0, file.bytes().byteSize());
    for (int field = in.next(); field != 0; field = in.next()) {
      switch (field) {
        case 1 -> settings.pieces.add(piece(in.message(), path, settings.pieces.size()));
        case 2 -> trainer(in.message(), settings, path);
        case 3 -> normalizer(in.message(), settings);
        case 5 -> denormalizes(in.message(), settings);
        default -> {} // how the trainer tests itself
      }
      if (settings.pieces.size() > Vocabulary.MOST_TOKENS) {
        throw new CheckpointException(
            "%s has more than %d pieces".formatted(path, Vocabulary.MOST_TOKENS));
      }
    }
    return checked(settings, path);
  }

  private static Piece piece(Protobuf in, Path path, int id) throws CheckpointException {
    String text = null;
    float score = 0;
    long type = 1;
    for (int field = in.next(); field != 0; field = in.next()) {
      switch (field) {
        case 1 -> text = in.string();
        case 2 -> score = Float.intBitsToFloat(in.fixed32());
        case 3 -> type = in.number();
        default -> {}
      }
    }
    Type known = type(type);
    if (text == null || text.isEmpty() || known == null || !Float.isFinite(score)) {
      throw new CheckpointException(
          "%s is no SentencePiece model: its piece %d has no text, score or type that makes sense"
              .formatted(path, id));
    }
    return new Piece(text, score, known);
  }

  private static @Nullable Type type(long number) {
    return number < 1 || number > Type.values().length ? null : Type.values()[(int) number - 1];
  }

  private static void trainer(Protobuf in, Settings settings, Path path)
      throws CheckpointException {
    for (int field = in.next(); field != 0; field = in.next()) {
      switch (field) {
        case 3 -> {
          long number = in.number();
          if (number < 1 || number > Algorithm.values().length) {
            throw new CheckpointException(
                "%s: its model_type is %d, which is not known".formatted(path, number));
          }
          settings.algorithm = Algorithm.values()[(int) number - 1];
        }
        case 24 -> settings.spaceAsSuffix = in.number() != 0;
        case 35 -> settings.byteFallback = in.number() != 0;
        case 40 -> settings.unknown = (int) in.number();
        case 44 -> settings.unknownText = in.string();
        default -> {}
      }
    }
  }

  private static void normalizer(Protobuf in, Settings settings) throws CheckpointException {
    for (int field = in.next(); field != 0; field = in.next()) {
      switch (field) {
        case 2 -> settings.charsmap = in.bytes();
        case 3 -> settings.dummyPrefix = in.number() != 0;
        case 4 -> settings.removeSpaces = in.number() != 0;
        case 5 -> settings.escapeSpaces = in.number() != 0;
        default -> {}
      }
    }
  }

  private static void denormalizes(Protobuf in, Settings settings) throws CheckpointException {
    for (int field = in.next(); field != 0; field = in.next()) {
      if (field == 2) {
        settings.denormalizes = in.bytes().length > 0;
      }
    }
  }

  private static SentencePieceModel checked(Settings of, Path path) throws CheckpointException {
    if (of.pieces.isEmpty()) {
      throw new CheckpointException(path + " is no SentencePiece model: it has no pieces");
    }
    for (int id = 0; id < of.pieces.size(); id++) { // the piece's type counts, as in SentencePiece
      if (of.pieces.get(id).type() == Type.UNKNOWN) {
        of.unknown = id;
      }
    }
    if (of.unknown < 0 || of.unknown >= of.pieces.size()) {
      throw new CheckpointException(
          "%s: its unk_id is %d and it has %d pieces"
              .formatted(path, of.unknown, of.pieces.size()));
    }
    return new SentencePieceModel(
        of.pieces,
        of.algorithm,
        of.unknown,
        of.unknownText,
        of.byteFallback,
        ByteBuffer.wrap(of.charsmap),
        of.dummyPrefix,
        of.removeSpaces,
        of.spaceAsSuffix,
        of.escapeSpaces,
        of.denormalizes);
  }
}
