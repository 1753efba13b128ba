package dev.loupe.hub;

import dev.loupe.weights.io.FileFault;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The folder within the model's own where files are gathered until all are whole, and the lock that
 * keeps a second pull out of it. The lock is the operating system's: it ends with the process.
 */
final class PullFolder implements AutoCloseable {
  private static final String NAME = ".loupe-pull";
  private static final int MARKS = 1 << 16;
  private static final long LOCKED = 1L << 40; // beyond the content, which Windows would not show

  private final Path target;
  private final Path folder;
  private final boolean made;
  private final FileChannel channel;

  private PullFolder(Path target, Path folder, boolean made, FileChannel channel) {
    this.target = target;
    this.folder = folder;
    this.made = made;
    this.channel = channel;
  }

  /**
   * Makes the folders where they are missing, and locks.
   *
   * @throws IOException if they can't be made, or another pull has them
   */
  static PullFolder open(Path target) throws IOException {
    Path folder = target.resolve(NAME);
    boolean made = !Files.exists(target);
    try {
      while (true) {
        Files.createDirectories(folder);
        FileChannel channel = locked(target, folder.resolve("lock"));
        if (channel != null) {
          return new PullFolder(target, folder, made, channel);
        }
      }
    } catch (FileSystemException e) {
      String why =
          e instanceof FileAlreadyExistsException ? "a file is in the way" : FileFault.of(e);
      throw new IOException("%s can't be written to: %s".formatted(target, why), e);
    }
  }

  /** Null if the lock that was got is one that another pull has just thrown away. */
  @SuppressWarnings("MustBeClosedChecker") // the staging keeps the channel open
  private static @Nullable FileChannel locked(Path target, Path file) throws IOException {
    FileChannel channel =
        FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    boolean kept = false;
    try {
      FileLock lock = tryLock(channel);
      if (lock == null) {
        throw new IOException("another loupe is pulling into %s: let it end".formatted(target));
      }
      // Told from a new file of that name by its length: opening it to look would unlock it, since
      // POSIX gives up a process's locks on a file when the process closes any channel to it.
      int mark = ThreadLocalRandom.current().nextInt(1, MARKS);
      channel.truncate(0).write(ByteBuffer.allocate(mark));
      kept = Files.exists(file) && Files.size(file) == mark;
      return kept ? channel : null;
    } finally {
      if (!kept) {
        channel.close();
      }
    }
  }

  private static @Nullable FileLock tryLock(FileChannel channel) throws IOException {
    try {
      return channel.tryLock(LOCKED, 1, false);
    } catch (OverlappingFileLockException e) {
      return null; // this process has it
    }
  }

  Path part(RemoteFile file) {
    return folder.resolve("%s.%s.part".formatted(file.name(), file.hash()));
  }

  /** Gives a whole part its name. */
  void publish(RemoteFile file) throws IOException {
    Path name = target.resolve(file.name());
    try {
      Files.move(part(file), name, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      throw new IOException(
          "%s can't be written: renaming %s failed: %s"
              .formatted(name, part(file), FileFault.of(e)),
          e);
    }
  }

  /** Deletes what is left of other pulls. */
  void clear() throws IOException {
    for (Path part : parts()) {
      Files.deleteIfExists(part);
    }
  }

  private List<Path> parts() throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.filter(file -> file.toString().endsWith(".part")).toList();
    }
  }

  /** Unlocks; what has come stays, and where nothing has come no folder does. */
  @Override
  public void close() throws IOException {
    try {
      for (Path part : parts()) {
        if (Files.size(part) == 0) {
          Files.deleteIfExists(part);
        }
      }
      Files.deleteIfExists(folder.resolve("lock"));
      if (parts().isEmpty()) {
        Files.deleteIfExists(folder);
        if (made) {
          Files.deleteIfExists(target); // fails unless it is empty
        }
      }
    } catch (FileSystemException e) {
      // left where it is, it does no harm
    } finally {
      channel.close();
    }
  }
}
