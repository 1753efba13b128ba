package dev.loupe.export;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** A file that is there until this is closed; for those who have nothing else to do with files. */
public final class TemporaryFile implements AutoCloseable {
  private final Path path;

  TemporaryFile(Path path) {
    this.path = path;
  }

  /** Reads it from its beginning. */
  public InputStream open() throws IOException {
    return Files.newInputStream(path);
  }

  /** Its length, in bytes. */
  public long bytes() throws IOException {
    return Files.size(path);
  }

  /** Deletes it; what can't be deleted now is when the process ends. */
  @Override
  public void close() {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      path.toFile().deleteOnExit();
    }
  }
}
