package dev.loupe.spark;

import dev.loupe.corpus.CorpusException;
import java.io.IOException;
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
}
