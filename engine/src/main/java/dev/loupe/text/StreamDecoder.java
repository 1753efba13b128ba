package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CodingErrorAction;

/**
 * Turns token ids into text as they come, whole characters only: the bytes of a character that is
 * spread over several tokens wait until its last one is there.
 *
 * <p>All that it returns, put together, equals {@link Tokenizer#decode} of all the ids. For one
 * stream and one thread.
 */
public final class StreamDecoder {
  private final Tokenizer tokenizer;
  private final boolean special;
  private final CharsetDecoder decoder =
      UTF_8
          .newDecoder()
          .onMalformedInput(CodingErrorAction.REPLACE)
          .onUnmappableCharacter(CodingErrorAction.REPLACE);
  private byte[] waiting = {}; // at most three: the beginning of a character

  private TextBytes text;
  private final CleanUp cleanUp = new CleanUp();

  /** A decoder at the beginning of a text, without special tokens. */
  public StreamDecoder(Tokenizer tokenizer) {
    this(tokenizer, false);
  }

  /**
   * A decoder at the beginning of a text.
   *
   * @param special whether special tokens are part of the text
   */
  public StreamDecoder(Tokenizer tokenizer, boolean special) {
    this.tokenizer = tokenizer;
    this.special = special;
    text = new TextBytes(tokenizer, special);
  }

  /**
   * Takes tokens whose text is known: what follows is not its beginning.
   *
   * @throws IllegalArgumentException if no token has one of the ids
   */
  public void skip(int[] ids) {
    ByteArrayOutputStream known = new ByteArrayOutputStream();
    for (int id : ids) {
      known.writeBytes(text.next(id));
    }
    if (tokenizer.cleansUp()) {
      cleanUp.skip(known.toString(UTF_8));
    }
  }

  /**
   * Takes the next token.
   *
   * @return the characters that it completes, perhaps none; a special token adds nothing unless it
   *     is part of the text
   * @throws IllegalArgumentException if no token has this id
   */
  public String push(int id) {
    String piece = push(text.next(id));
    return tokenizer.cleansUp() ? cleanUp.push(piece) : piece;
  }

  /** Takes the next bytes; returns the characters that they complete. */
  String push(byte[] bytes) {
    return decode(bytes, false);
  }

  /**
   * Ends the text.
   *
   * @return U+FFFD if a character was left incomplete, else the empty string; after it the decoder
   *     is at the beginning of another text
   */
  public String finish() {
    String rest = decode(new byte[0], true);
    if (tokenizer.cleansUp()) {
      rest = cleanUp.push(rest) + cleanUp.finish();
    }
    decoder.reset();
    text = new TextBytes(tokenizer, special);
    return rest;
  }

  private String decode(byte[] bytes, boolean end) {
    ByteBuffer in = ByteBuffer.allocate(waiting.length + bytes.length).put(waiting).put(bytes);
    in.flip();
    CharBuffer out = CharBuffer.allocate(in.remaining()); // a byte gives one char at most
    decoder.decode(in, out, end);
    waiting = new byte[in.remaining()];
    in.get(waiting);
    return out.flip().toString();
  }
}
