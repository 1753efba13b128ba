package dev.loupe.cuda.driver;

import java.io.IOException;
import java.io.InputStream;
import java.net.URLConnection;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * Where native libraries are kept that come in jars: unpacked once, in a folder that nobody else
 * can write to, so that what is loaded is what was unpacked.
 */
public final class LibraryCache {
  private LibraryCache() {}

  /**
   * The folder for all of Loupe's libraries: {@code LOUPE_CACHE} if that is set, else {@code loupe}
   * in the user's cache folder; null if the environment names no folder for such things.
   *
   * @param env gives the value of an environment variable, or null
   * @param os as in the property {@code os.name}
   * @param home the user's home
   */
  public static @Nullable Path folder(UnaryOperator<@Nullable String> env, String os, String home) {
    String chosen = env.apply("LOUPE_CACHE");
    if (chosen != null && !chosen.isEmpty()) {
      return Path.of(chosen).toAbsolutePath();
    }
    String shared = env.apply(os.startsWith("Windows") ? "LOCALAPPDATA" : "XDG_CACHE_HOME");
    Path folder =
        shared != null && !shared.isEmpty()
            ? Path.of(shared)
            : Path.of(home, os.startsWith("Mac") ? "Library/Caches" : ".cache");
    // a user without a home has "?" or "" for one
    return folder.isAbsolute() ? folder.resolve("loupe") : null;
  }

  /**
   * Makes {@code folder} unless it is there.
   *
   * @throws IOException if it can't be made, or is another user's or open to others
   */
  public static void createPrivate(Path folder) throws IOException {
    if (!folder.getFileSystem().supportedFileAttributeViews().contains("posix")) {
      Files.createDirectories(folder);
      return;
    }
    FileAttribute<?> ownerOnly =
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
    Files.createDirectories(folder, ownerOnly);
    PosixFileAttributes attributes =
        Files.getFileAttributeView(folder, PosixFileAttributeView.class).readAttributes();
    boolean others =
        attributes.permissions().contains(PosixFilePermission.GROUP_WRITE)
            || attributes.permissions().contains(PosixFilePermission.OTHERS_WRITE);
    String user = System.getProperty("user.name");
    if (others || !attributes.owner().getName().equals(user)) {
      throw new IOException("%s is not private to %s".formatted(folder, user));
    }
  }

  /**
   * The unpacked {@code file} in {@code folder}: the one that is there if it has the right size,
   * since nobody else could put it there.
   *
   * @param resource its content
   * @throws IOException if it can't be written; nothing half-written stays
   */
  public static Path unpack(URLConnection resource, String file, Path folder) throws IOException {
    Path target = folder.resolve(file);
    if (Files.isRegularFile(target) && Files.size(target) == resource.getContentLengthLong()) {
      return target;
    }
    Path part = Files.createTempFile(folder, file, ".part");
    try (InputStream in = resource.getInputStream()) {
      Files.copy(in, part, StandardCopyOption.REPLACE_EXISTING);
      Files.move(part, target, StandardCopyOption.ATOMIC_MOVE); // another process may do the same
    } finally {
      Files.deleteIfExists(part);
    }
    return target;
  }

  /** Deletes what was unpacked for this process only; a leftover is no reason to fail. */
  public static void deleteQuietly(Path path) {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      // it lies in the temporary folder, and on Windows a loaded library can't be deleted
    }
  }
}
