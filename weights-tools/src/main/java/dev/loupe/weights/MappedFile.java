package dev.loupe.weights;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * A file in memory, read-only: pages come in as they are touched, nothing is copied.
 *
 * @param path the file, as it was named
 * @param bytes all of it; not empty
 */
record MappedFile(Path path, MemorySegment bytes) {
  private static final byte[] LFS_POINTER =
      "version https://git-lfs".getBytes(StandardCharsets.US_ASCII);

  /**
   * Maps a file until {@code arena} closes.
   *
   * @throws CheckpointException if it isn't there, can't be read, is empty, or is a Git LFS pointer
   */
  static MappedFile open(Path path, Arena arena) throws CheckpointException {
    // asked first because opening a pipe would wait for its other end
    if (!Files.exists(path)) {
      throw new CheckpointException(path + " does not exist");
    }
    if (!Files.isRegularFile(path)) {
      throw new CheckpointException(path + " is not a regular file");
    }
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      MemorySegment bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size(), arena);
      if (bytes.byteSize() == 0) {
        throw new CheckpointException(path + " is empty; copy or download it again");
      }
      MappedFile file = new MappedFile(path, bytes);
      if (file.startsWith(LFS_POINTER)) {
        throw new CheckpointException(
            path + " is a Git LFS pointer, not the file itself: run git lfs pull");
      }
      return file;
    } catch (CheckpointException e) {
      throw e;
    } catch (AccessDeniedException e) {
      throw new CheckpointException(path + " can't be read: permission denied", e);
    } catch (IOException | UnsupportedOperationException e) {
      throw new CheckpointException("%s can't be read: %s".formatted(path, e.getMessage()), e);
    }
  }

  boolean startsWith(byte[] prefix) {
    return holds(prefix, 0);
  }

  /** Whether these bytes are there, at {@code offset}. */
  boolean holds(byte[] expected, long offset) {
    return bytes.byteSize() - offset >= expected.length
        && bytes.asSlice(offset, expected.length).mismatch(MemorySegment.ofArray(expected)) == -1;
  }

  byte byteAt(long offset) {
    return bytes.get(ValueLayout.JAVA_BYTE, offset);
  }
}
