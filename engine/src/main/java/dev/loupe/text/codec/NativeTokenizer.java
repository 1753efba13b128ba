package dev.loupe.text.codec;

import static java.nio.charset.StandardCharsets.UTF_8;

import ai.djl.huggingface.tokenizers.jni.TokenizersLibrary;
import dev.loupe.weights.io.CheckpointException;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.stream.LongStream;

/**
 * One tokenizer in native memory. Encoding from several threads at once is fine; the lock keeps
 * {@link #close} from freeing memory that an encoding thread still reads.
 */
final class NativeTokenizer implements Encoder {
  private static final TokenizersLibrary LIBRARY = TokenizersLibrary.LIB;

  private final int[] byteIds; // by byte; empty if what is unknown is not spelled in bytes
  private final int unknown;
  private final ReadWriteLock lock = new ReentrantReadWriteLock();
  private long handle; // 0 once closed; guarded by lock

  /**
   * @param json a tokenizer.json that neither truncates nor pads
   * @throws CheckpointException if the native library doesn't load
   * @throws IllegalArgumentException if the library refuses the JSON; the message is its own
   */
  NativeTokenizer(String json) throws CheckpointException {
    this(json, -1, new int[0]);
  }

  /**
   * Likewise; what the model does not know is spelled in tokens of one byte.
   *
   * @param unknown the id that the library gives for it
   * @param byteIds by byte
   */
  NativeTokenizer(String json, int unknown, int[] byteIds) throws CheckpointException {
    this.unknown = unknown;
    this.byteIds = byteIds.clone();
    NativeLibrary.load();
    try {
      handle = LIBRARY.createTokenizerFromString(json);
    } catch (RuntimeException e) { // the library has no better class for its errors
      throw new IllegalArgumentException(e.getMessage(), e);
    } catch (UnsatisfiedLinkError e) {
      throw new CheckpointException(
          "DJL's tokenizer classes and Loupe's come from different class loaders: load them"
              + " together",
          e);
    }
  }

  /**
   * The ids of {@code text}.
   *
   * @param text whole characters only: the library reads a lone surrogate as it likes
   * @throws IllegalArgumentException if the model has no token for some of it
   * @throws IllegalStateException if closed
   */
  @Override
  public long[] encode(String text) {
    lock.readLock().lock();
    try {
      if (handle == 0) {
        throw new IllegalStateException("tokenizer is closed");
      }
      long encoding;
      try {
        encoding = LIBRARY.encode(handle, text, false);
      } catch (RuntimeException e) { // the library has no better class for its errors
        throw new IllegalArgumentException(
            "the tokenizer has no token for a part of the text: " + e.getMessage(), e);
      }
      try {
        long[] ids = LIBRARY.getTokenIds(encoding);
        return byteIds.length == 0 ? ids : inBytes(ids, LIBRARY.getTokens(encoding));
      } finally {
        LIBRARY.deleteEncoding(encoding);
      }
    } finally {
      lock.readLock().unlock();
    }
  }

  private long[] inBytes(long[] ids, String[] tokens) {
    LongStream.Builder all = LongStream.builder();
    for (int i = 0; i < ids.length; i++) {
      if (ids[i] != unknown) {
        all.accept(ids[i]);
        continue;
      }
      for (byte b : tokens[i].getBytes(UTF_8)) {
        all.accept(byteIds[b & 0xFF]);
      }
    }
    return all.build().toArray();
  }

  @Override
  public void close() {
    lock.writeLock().lock();
    try {
      if (handle != 0) {
        LIBRARY.deleteTokenizer(handle);
        handle = 0;
      }
    } finally {
      lock.writeLock().unlock();
    }
  }
}
