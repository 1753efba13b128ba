package dev.loupe.cuda;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.cuda.driver.LibraryCache;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Lines that outlive the process, in a folder that only the user can write to. The last line is a
 * hash of the others: what was cut short or changed is not taken for what was written.
 */
public final class CacheFile {
  private static final String SUM = "sum\t";
  private static final int MOST_BYTES = 1 << 20; // what is known of a card takes some kilobytes

  private final Path path;

  private CacheFile(Path path) {
    this.path = path;
  }

  /** What was in a file, or why that is of no use. */
  public static final class DamagedException extends Exception {
    private static final long serialVersionUID = 1L;

    DamagedException(String message) {
      super(message);
    }
  }

  /**
   * The folder of what is known of cards; it is made if it is not there.
   *
   * @throws IOException if it can't be made or others may write to it
   */
  private static Path folder() throws IOException {
    @Nullable Path cache =
        LibraryCache.folder(
            System::getenv, System.getProperty("os.name", ""), System.getProperty("user.home", ""));
    if (cache == null) {
      throw new IOException("there is no folder for such things");
    }
    Path folder = cache.resolve("cards");
    LibraryCache.createPrivate(folder);
    return folder;
  }

  /**
   * What is kept of a card, which may be nothing yet.
   *
   * @param ending what kind of thing it is
   * @param of what else than the card it belongs to; may be empty
   * @throws IOException if no file can be kept here
   */
  public static CacheFile of(Card card, String ending, List<String> of) throws IOException {
    return in(folder(), card, ending, of);
  }

  /** Likewise in a folder that is there. */
  static CacheFile in(Path folder, Card card, String ending, List<String> of) {
    String more = of.isEmpty() ? "" : "-" + Card.hash(of);
    return new CacheFile(folder.resolve(card.key() + more + "." + ending));
  }

  /**
   * What was written last; empty if there is nothing.
   *
   * @throws DamagedException if it is not what was written, in one sentence
   */
  public Optional<List<String>> read() throws DamagedException {
    try {
      requireFile(path);
      byte[] bytes;
      try (InputStream in = Files.newInputStream(path)) {
        bytes = in.readNBytes(MOST_BYTES + 1);
      }
      if (bytes.length > MOST_BYTES) {
        throw new DamagedException("%s has more bytes than were written".formatted(path));
      }
      List<String> all =
          UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString().lines().toList();
      List<String> lines = all.subList(0, Math.max(0, all.size() - 1));
      if (all.isEmpty() || !all.getLast().equals(SUM + Card.hash(lines))) {
        throw new DamagedException("%s is damaged or was changed".formatted(path));
      }
      return Optional.of(lines);
    } catch (NoSuchFileException e) {
      return Optional.empty();
    } catch (IOException e) {
      throw new DamagedException("%s can't be read: %s".formatted(path, e.getMessage()));
    }
  }

  /** To open a pipe would wait for its other end, and a device may never end. */
  private static void requireFile(Path path) throws IOException {
    if (!Files.readAttributes(path, BasicFileAttributes.class).isRegularFile()) {
      throw new IOException("it is no regular file");
    }
  }

  /** What was written last; empty if there is nothing, or it was changed. */
  public Optional<List<String>> lines() {
    try {
      return read();
    } catch (DamagedException e) {
      return Optional.empty(); // is made anew
    }
  }

  /**
   * Writes all of it, or leaves what was there.
   *
   * @throws IOException if it can't be written
   */
  public void write(List<String> lines) throws IOException {
    List<String> all = new ArrayList<>(lines);
    all.add(SUM + Card.hash(lines));
    Path part = Files.createTempFile(path.getParent(), "card-", ".part");
    try {
      Files.write(part, all);
      Files.move(part, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(part);
    }
  }

  /** Keeps other processes from what is done with this file, until it is closed. */
  public FileLock lock() throws IOException {
    Path lock = path.resolveSibling(path.getFileName() + ".lock");
    if (Files.exists(lock)) {
      requireFile(lock);
    }
    FileChannel channel =
        FileChannel.open(lock, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    try {
      return channel.lock();
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** Forgets all that is kept of a card; what can't be deleted is told. */
  public static void forget(Card card) throws IOException {
    try (Stream<Path> files = Files.list(folder())) {
      for (Path file : files.toList()) {
        String name = file.getFileName().toString();
        if (name.startsWith(card.key()) && !name.endsWith(".lock")) {
          Files.deleteIfExists(file);
        }
      }
    }
  }
}
