package dev.loupe.weights.io;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;

/**
 * A file that appears only when it is whole. It is written under a temporary name in the folder of
 * its target; {@link #commit} renames it, {@link #close} without commit deletes it, and so does the
 * end of the program by a signal. Until the rename an older file of that name stays as it was.
 *
 * <p>Where the target is a pipe or a device, there is nothing to rename and the bytes go straight
 * to it. The file isn't forced to disk: this guards against a program that ends early, not against
 * a power failure.
 */
public final class AtomicFile implements AutoCloseable {
  private static final Set<Path> UNCOMMITTED = ConcurrentHashMap.newKeySet();

  static {
    Runtime.getRuntime().addShutdownHook(new Thread(AtomicFile::deleteUncommitted));
  }

  private final Path named; // as the caller wrote it, for messages
  private final Path target; // with links resolved, so that a link stays one
  private final Path path;
  private final FileChannel channel;
  private @Nullable OutputStream stream;
  private boolean committed;

  private AtomicFile(Path named, Path target, Path path, FileChannel channel) {
    this.named = named;
    this.target = target;
    this.path = path;
    this.channel = channel;
  }

  /**
   * Starts to write what will be {@code target}.
   *
   * @throws IOException if it can't be written: it is a folder, its folder is missing or is not
   *     writable; the message is one sentence that names it
   */
  @SuppressWarnings("MustBeClosedChecker") // the file keeps the channel open
  public static AtomicFile create(Path target) throws IOException {
    if (Files.isDirectory(target)) {
      throw new IOException(target + " is a folder; give the name of a file");
    }
    Path real = Files.exists(target) ? target.toRealPath() : target.toAbsolutePath();
    if (Files.exists(real) && !Files.isRegularFile(real)) {
      return new AtomicFile(target, real, real, open(target, real, StandardOpenOption.WRITE));
    }
    Path folder = real.getParent();
    if (folder == null || !Files.isDirectory(folder)) {
      throw new IOException("%s can't be written: there is no folder %s".formatted(target, folder));
    }
    // no part of the target's own name, which may already be as long as names can be
    String name = ".loupe-%016x.part".formatted(ThreadLocalRandom.current().nextLong());
    Path temporary = folder.resolve(name);
    UNCOMMITTED.add(temporary);
    boolean opened = false;
    try {
      FileChannel channel =
          open(
              target,
              temporary,
              StandardOpenOption.CREATE_NEW,
              StandardOpenOption.READ,
              StandardOpenOption.WRITE);
      opened = true;
      return new AtomicFile(target, real, temporary, channel);
    } finally {
      if (!opened) {
        UNCOMMITTED.remove(temporary);
      }
    }
  }

  private static FileChannel open(Path target, Path path, OpenOption... options)
      throws IOException {
    try {
      return FileChannel.open(path, options);
    } catch (FileSystemException e) {
      throw new IOException("%s can't be written: %s".formatted(target, FileFault.of(e)), e);
    }
  }

  /** Where the bytes are until {@link #commit}; for those who write by name. */
  public Path path() {
    return path;
  }

  /**
   * Refuses to begin what can't be ended.
   *
   * @throws IOException if the file system has less room than this; the message says how much
   */
  public void requireRoom(long bytes) throws IOException {
    if (!Files.isRegularFile(path)) {
      return; // a pipe takes any number
    }
    long room = room(path);
    if (room < bytes) {
      throw new IOException(
          "%s needs %d bytes, but its file system has room for %d only"
              .formatted(named, bytes, room));
    }
  }

  /**
   * Bytes that the file system of {@code file} has room for.
   *
   * @param file which is there
   * @return {@link Long#MAX_VALUE} where the system does not tell, as in a root folder that is no
   *     mount point (chroot)
   */
  public static long room(Path file) {
    try {
      return Files.getFileStore(file).getUsableSpace();
    } catch (IOException e) {
      return Long.MAX_VALUE; // writing will show
    }
  }

  /**
   * Writes all that remains of {@code bytes} at the channel's position.
   *
   * @throws IOException if it can't be written; the message names the target
   */
  public void write(ByteBuffer bytes) throws IOException {
    try {
      while (bytes.hasRemaining()) {
        channel.write(bytes);
      }
    } catch (ClosedChannelException e) {
      throw e; // also how an interrupt of this thread shows
    } catch (IOException e) {
      throw new IOException("%s can't be written: %s".formatted(named, FileFault.of(e)), e);
    }
  }

  /** Writes at any position. Closing it is the same as {@link #close}, without the deletion. */
  public SeekableByteChannel channel() {
    return channel;
  }

  /** Writes from the channel's position on, buffered; its errors name the target. */
  public OutputStream stream() {
    if (stream == null) {
      stream = new BufferedOutputStream(new ChannelStream(), 1 << 16);
    }
    return stream;
  }

  /**
   * Gives the file its name. Nothing can be written after that.
   *
   * @throws IOException if the last bytes can't be written or the rename fails; then the older file
   *     is still there
   */
  public void commit() throws IOException {
    if (committed) {
      throw new IllegalStateException(named + " is already committed");
    }
    if (stream != null) {
      stream.flush();
    }
    channel.close();
    if (!path.equals(target)) {
      try {
        Files.move(path, target, StandardCopyOption.ATOMIC_MOVE);
      } catch (IOException e) {
        throw new IOException(
            "%s can't be written: renaming %s failed: %s".formatted(named, path, FileFault.of(e)),
            e);
      }
    }
    committed = true;
    UNCOMMITTED.remove(path);
  }

  /** Takes back what was committed, for files that belong together and of which one failed. */
  public void undo() throws IOException {
    if (committed && !path.equals(target)) {
      Files.deleteIfExists(target);
    }
  }

  /** Ends the writing; deletes what was not committed. */
  @Override
  public void close() throws IOException {
    channel.close();
    if (!committed && !path.equals(target)) {
      Files.deleteIfExists(path);
      UNCOMMITTED.remove(path);
    }
  }

  private static void deleteUncommitted() {
    for (Path path : UNCOMMITTED) {
      try {
        Files.deleteIfExists(path);
      } catch (IOException e) {
        // the program is ending: nobody is left to tell, and the next file may go
      }
    }
  }

  private final class ChannelStream extends OutputStream {
    @Override
    public void write(int b) throws IOException {
      write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] from, int offset, int count) throws IOException {
      AtomicFile.this.write(ByteBuffer.wrap(from, offset, count));
    }
  }
}
