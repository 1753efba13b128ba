package dev.loupe.weights.io;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;

/** Why the system does not do what it is asked for, in words for a person. */
public final class FileFault {
  private FileFault() {}

  /** The end of a sentence: {@code permission denied}. */
  public static String of(IOException e) {
    String said =
        e instanceof FileSystemException file && file.getReason() != null
            ? file.getReason()
            : e.getMessage();
    return switch (e) {
      case AccessDeniedException _ -> "permission denied";
      case NoSuchFileException _ -> "it does not exist";
      case NotDirectoryException _ -> "it is not a folder";
      case FileSystemException file when file.getReason() == null ->
          "the system does not say why (%s)".formatted(file.getClass().getSimpleName());
      default -> said == null ? e.getClass().getSimpleName() : known(said);
    };
  }

  /** The system's own words, and what to do where that is clear. */
  private static String known(String said) {
    if (said.contains("Too many open files")) {
      return "too many open files: raise the limit (ulimit -n) to 64 or more";
    }
    if (said.contains("No space left") || said.contains("Disk quota exceeded")) {
      return said.contains("quota") ? "the disk quota is used up" : "no space left on device";
    }
    return said;
  }
}
