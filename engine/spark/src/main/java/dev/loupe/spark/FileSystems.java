package dev.loupe.spark;

import dev.loupe.corpus.CorpusException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.util.VersionInfo;

/** Where files lie, by the scheme of their address. */
final class FileSystems {
  private FileSystems() {}

  /**
   * The file system of a path.
   *
   * @throws CorpusException if nothing here knows its scheme
   * @throws IOException if it can't be reached
   */
  static FileSystem of(Path path, Configuration hadoop) throws IOException {
    try {
      return path.getFileSystem(hadoop);
    } catch (UnsupportedFileSystemException e) {
      throw new CorpusException("%s: nothing here reads such addresses".formatted(path), e);
    } catch (RuntimeException e) {
      if (!String.valueOf(e.getMessage()).contains("ClassNotFoundException")) {
        throw e;
      }
      // Hadoop knows the scheme, and its class is in a library that Spark comes without
      String scheme = path.toUri().getScheme();
      throw new CorpusException(
          "%s: what reads such addresses is not here%s"
              .formatted(
                  path,
                  "s3a".equals(scheme)
                      ? "; give spark-submit --packages org.apache.hadoop:hadoop-aws:"
                          + VersionInfo.getVersion()
                      : ": " + e.getMessage()),
          e);
    }
  }

  /**
   * That a file on this machine may be opened: to open a pipe would wait for its other end, and a
   * device may never end. Other file systems have neither.
   *
   * @throws CorpusException if it is one
   */
  static void requireRegular(Path file) throws CorpusException {
    URI address = file.toUri();
    boolean local = address.getScheme() == null || address.getScheme().equals("file");
    if (local && !Files.isRegularFile(java.nio.file.Path.of(address.getPath()))) {
      throw new CorpusException(
          "%s is not a regular file but a pipe or a device".formatted(address.getPath()));
    }
  }
}
