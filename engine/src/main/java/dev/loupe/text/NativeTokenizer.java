package dev.loupe.text;

import ai.djl.huggingface.tokenizers.jni.TokenizersLibrary;
import dev.loupe.weights.CheckpointException;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * One tokenizer in native memory. Encoding from several threads at once is fine; the lock keeps
 * {@link #close} from freeing memory that an encoding thread still reads.
 */
final class NativeTokenizer implements Encoder {
  private static final TokenizersLibrary LIBRARY = TokenizersLibrary.LIB;

  private final ReadWriteLock lock = new ReentrantReadWriteLock();
  private long handle; // 0 once closed; guarded by lock

  /**
   * @param json a tokenizer.json that neither truncates nor pads
   * @throws CheckpointException if the native library doesn't load
   * @throws IllegalArgumentException if the library refuses the JSON; the message is its own
   */
  NativeTokenizer(String json) throws CheckpointException {
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
   * @throws IllegalStateException if closed
   */
  @Override
  public long[] encode(String text) {
    lock.readLock().lock();
    try {
      if (handle == 0) {
        throw new IllegalStateException("tokenizer is closed");
      }
      long encoding = LIBRARY.encode(handle, text, false);
      try {
        return LIBRARY.getTokenIds(encoding);
      } finally {
        LIBRARY.deleteEncoding(encoding);
      }
    } finally {
      lock.readLock().unlock();
    }
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
