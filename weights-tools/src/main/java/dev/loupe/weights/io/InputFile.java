package dev.loupe.weights.io;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A file that somebody else wrote. All files that are not Loupe's own come in through here: weights
 * are {@linkplain #map mapped}, everything else is {@linkplain #read read whole} up to a size that
 * the caller sets, before anything is made of it.
 *
 * <p>Only regular files come in. To open a pipe would wait for its other end, and a device may
 * never end.
 */
public final class InputFile {
  private static final byte[] LFS_POINTER =
      "version https://git-lfs".getBytes(StandardCharsets.US_ASCII);

  private final Path path;
  private final MemorySegment bytes;
  private final @Nullable Stamp stamp;

  /** What shows that a file was written to: which file it is, its length and its time. */
  private record Stamp(@Nullable Object key, long size, FileTime modified) {
    static Stamp of(BasicFileAttributes attributes) {
      return new Stamp(attributes.fileKey(), attributes.size(), attributes.lastModifiedTime());
    }
  }

  private InputFile(Path path, MemorySegment bytes, @Nullable Stamp stamp) {
    this.path = path;
    this.bytes = bytes;
    this.stamp = stamp;
  }

  /** Bytes that are at hand already, under a name for messages. */
  public InputFile(Path path, MemorySegment bytes) {
    this(path, bytes, null);
  }

  /**
   * Maps a file until {@code arena} closes: pages come in as they are touched, nothing is copied.
   *
   * @throws CheckpointException if it isn't there, can't be read, is empty, is no regular file, or
   *     is a Git LFS pointer
   */
  public static InputFile map(Path path, Arena arena) throws CheckpointException {
    Stamp stamp = regular(path);
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      MemorySegment bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size(), arena);
      return checked(new InputFile(path, bytes, stamp));
    } catch (CheckpointException e) {
      throw e;
    } catch (IOException | UnsupportedOperationException e) {
      throw unreadable(path, e);
    }
  }

  /**
   * Reads a whole file.
   *
   * @param most bytes that a sound one has
   * @param kind what it should be, as messages call it: {@code a model's config}
   * @throws CheckpointException likewise, or if it is longer
   */
  public static InputFile read(Path path, int most, String kind) throws CheckpointException {
    Stamp stamp = regular(path);
    if (stamp.size > most) {
      throw new CheckpointException(
          "%s has %d bytes, too many for %s".formatted(path, stamp.size, kind));
    }
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      ByteBuffer all = ByteBuffer.allocate((int) stamp.size);
      while (all.hasRemaining() && channel.read(all) >= 0) {
        // until it is full, or the file ends before that
      }
      InputFile file = new InputFile(path, MemorySegment.ofArray(all.array()), stamp);
      if (all.hasRemaining()) {
        throw file.changed();
      }
      return checked(file);
    } catch (CheckpointException e) {
      throw e;
    } catch (IOException e) {
      throw unreadable(path, e);
    }
  }

  private static Stamp regular(Path path) throws CheckpointException {
    BasicFileAttributes attributes;
    try {
      attributes = Files.readAttributes(path, BasicFileAttributes.class);
    } catch (IOException e) {
      if (Files.notExists(path)) {
        throw new CheckpointException(path + " does not exist", e);
      }
      throw unreadable(path, e);
    }
    if (!attributes.isRegularFile()) {
      throw new CheckpointException(
          "%s is not a regular file but %s"
              .formatted(path, attributes.isDirectory() ? "a folder" : "a pipe or a device"));
    }
    return Stamp.of(attributes);
  }

  private static InputFile checked(InputFile file) throws CheckpointException {
    if (file.bytes.byteSize() == 0) {
      throw new CheckpointException(file.path + " is empty; copy or download it again");
    }
    if (file.startsWith(LFS_POINTER)) {
      throw new CheckpointException(
          file.path + " is a Git LFS pointer, not the file itself: run git lfs pull");
    }
    return file;
  }

  private static CheckpointException unreadable(Path path, Exception e) {
    String why = e instanceof IOException io ? FileFault.of(io) : String.valueOf(e.getMessage());
    return new CheckpointException("%s can't be read: %s".formatted(path, why), e);
  }

  /** The file, as it was named. */
  public Path path() {
    return path;
  }

  /** All of it, read-only; not empty. */
  public MemorySegment bytes() {
    return bytes;
  }

  /**
   * That nobody has written to the file since it was opened; a file that took its name does no
   * harm.
   *
   * @throws CheckpointException if somebody has
   */
  public void checkUnchanged() throws CheckpointException {
    if (stamp == null) {
      return;
    }
    Stamp now;
    try {
      now = Stamp.of(Files.readAttributes(path, BasicFileAttributes.class));
    } catch (IOException e) {
      return; // it is gone, and what was opened stays as it was
    }
    if (Objects.equals(now.key, stamp.key) && !now.equals(stamp)) {
      throw changed();
    }
  }

  private CheckpointException changed() {
    return new CheckpointException(
        path + " was changed by another program while it was in use: run this again when it rests");
  }

  /** Whether these bytes are at its start. */
  public boolean startsWith(byte[] prefix) {
    return holds(prefix, 0);
  }

  /** Whether these bytes are there, at {@code offset}. */
  public boolean holds(byte[] expected, long offset) {
    return bytes.byteSize() - offset >= expected.length && isAt(bytes, offset, expected);
  }

  /** Whether {@code expected} is at a place where so many bytes are. */
  static boolean isAt(MemorySegment bytes, long offset, byte[] expected) {
    for (int i = 0; i < expected.length; i++) {
      if (bytes.get(ValueLayout.JAVA_BYTE, offset + i) != expected[i]) {
        return false;
      }
    }
    return true;
  }

  /**
   * The byte at {@code offset}.
   *
   * @throws IndexOutOfBoundsException if it has fewer
   */
  public byte byteAt(long offset) {
    return bytes.get(ValueLayout.JAVA_BYTE, offset);
  }

  /** All of it as an array, without a copy if it was read. */
  public byte[] array() {
    return bytes.heapBase().orElse(null) instanceof byte[] all && all.length == bytes.byteSize()
        ? all
        : bytes.toArray(ValueLayout.JAVA_BYTE);
  }

  /**
   * All of it as text.
   *
   * @throws CheckpointException if it isn't UTF-8
   */
  public String text() throws CheckpointException {
    try {
      return UTF_8.newDecoder().decode(bytes.asByteBuffer()).toString();
    } catch (CharacterCodingException e) {
      throw new CheckpointException(path + " is not UTF-8 text", e);
    }
  }

  /**
   * Gives its lines, one after the other.
   *
   * @throws CheckpointException if it isn't UTF-8
   */
  public void lines(Consumer<String> each) throws CheckpointException {
    try (BufferedReader in =
        new BufferedReader(
            new InputStreamReader(new ByteArrayInputStream(array()), UTF_8.newDecoder()))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        each.accept(line);
      }
    } catch (IOException e) { // of the decoder: nothing else is read here
      throw new CheckpointException(path + " is not UTF-8 text", e);
    }
  }

  /**
   * Reads it as strict JSON.
   *
   * @throws CheckpointException if it is none, or if {@code body} throws one
   */
  public <T> T json(StrictJson.Body<T> body) throws CheckpointException {
    return StrictJson.parse(path.toString(), bytes, body);
  }

  /**
   * Reads it as one JSON object.
   *
   * @throws CheckpointException if it is none, or has more values than any settings
   */
  public JsonObject object() throws CheckpointException {
    JsonElement json = json(in -> StrictJson.tree(in, path.toString(), StrictJson.MOST_VALUES));
    if (!json.isJsonObject()) {
      throw new CheckpointException(path + " is not a JSON object");
    }
    return json.getAsJsonObject();
  }

  /**
   * Whether a name that a file gives of another is that of one beside it: a name that leads
   * elsewhere is an attack or a mistake.
   */
  public static boolean isFileName(String name) {
    if (name.isBlank() || name.equals(".") || name.equals("..")) {
      return false;
    }
    if (name.chars().anyMatch(c -> c == '/' || c == '\\' || Character.isISOControl(c))) {
      return false;
    }
    try {
      return !Path.of(name).isAbsolute();
    } catch (InvalidPathException e) {
      return false;
    }
  }
}
