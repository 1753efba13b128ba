package dev.loupe.weights;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.AccessMode;
import java.nio.file.CopyOption;
import java.nio.file.DirectoryStream;
import java.nio.file.FileStore;
import java.nio.file.FileSystem;
import java.nio.file.FileSystemException;
import java.nio.file.FileSystems;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.PathMatcher;
import java.nio.file.StandardOpenOption;
import java.nio.file.WatchService;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.FileAttributeView;
import java.nio.file.attribute.UserPrincipalLookupService;
import java.nio.file.spi.FileSystemProvider;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The machine's files, but that the n-th step that changes them fails once: making a file or
 * folder, a write, forcing to disk, a rename. Deleting and reading always work.
 */
public final class FaultyFiles {
  /** The words of a fault, which a message must pass on. */
  public static final String REASON = "no luck";

  private final FileSystem real = FileSystems.getDefault();
  private final Provider provider = new Provider();
  private final Wrapped system = new Wrapped();
  private int left;
  private boolean failed;
  private boolean noFolders;

  private FaultyFiles(int left) {
    this.left = left;
  }

  /** What writes into a folder. */
  public interface Writing {
    void into(Path folder) throws IOException;
  }

  /** What must hold after a failure. */
  public interface Check {
    void of(Path folder, IOException failure) throws IOException;
  }

  /**
   * Does it again and again, each time with a fault one step later, until there is none.
   *
   * @param fresh gives a folder for each time
   * @return how many faults there were
   */
  public static int inTurn(Fresh fresh, Writing writing, Check afterFault) throws IOException {
    for (int n = 0; ; n++) {
      Path folder = fresh.folder(n);
      FaultyFiles files = new FaultyFiles(n);
      try {
        writing.into(files.wrap(folder));
        if (files.failed) {
          throw new AssertionError("fault " + n + " was not noticed");
        }
        return n;
      } catch (IOException e) {
        if (!files.failed) {
          throw new AssertionError("a failure without a fault", e);
        }
        if (!String.valueOf(e.getMessage()).contains(REASON)) {
          throw new AssertionError("fault " + n + ": the message does not say why: " + e, e);
        }
        afterFault.of(folder, e);
      }
    }
  }

  /** A folder for the n-th time. */
  public interface Fresh {
    Path folder(int n) throws IOException;
  }

  private synchronized void step(Path path) throws IOException {
    if (left-- == 0) {
      failed = true;
      throw new FileSystemException(path.toString(), null, REASON);
    }
  }

  private Path wrap(Path path) {
    return (Path)
        Proxy.newProxyInstance(
            FaultyFiles.class.getClassLoader(),
            new Class<?>[] {Path.class},
            (self, method, arguments) -> {
              switch (method.getName()) {
                case "getFileSystem" -> {
                  return system;
                }
                case "equals" -> {
                  return arguments[0] instanceof Path other && path.equals(unwrap(other));
                }
                default -> {}
              }
              Object[] plain = arguments == null ? new Object[0] : arguments.clone();
              for (int i = 0; i < plain.length; i++) {
                plain[i] = plain[i] instanceof Path other ? unwrap(other) : plain[i];
              }
              try {
                Object result = method.invoke(path, plain);
                return result instanceof Path other ? wrap(other) : result;
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  private Path unwrap(Path path) {
    return path.getFileSystem() == system ? real.getPath(path.toString()) : path;
  }

  private final class Wrapped extends FileSystem {
    @Override
    public FileSystemProvider provider() {
      return provider;
    }

    @Override
    public void close() {}

    @Override
    public boolean isOpen() {
      return true;
    }

    @Override
    public boolean isReadOnly() {
      return false;
    }

    @Override
    public String getSeparator() {
      return real.getSeparator();
    }

    @Override
    public Iterable<Path> getRootDirectories() {
      return List.of();
    }

    @Override
    public Iterable<FileStore> getFileStores() {
      return real.getFileStores();
    }

    @Override
    public Set<String> supportedFileAttributeViews() {
      return real.supportedFileAttributeViews();
    }

    @Override
    public Path getPath(String first, String... more) {
      return wrap(real.getPath(first, more));
    }

    @Override
    public PathMatcher getPathMatcher(String pattern) {
      PathMatcher matcher = real.getPathMatcher(pattern);
      return path -> matcher.matches(unwrap(path));
    }

    @Override
    public UserPrincipalLookupService getUserPrincipalLookupService() {
      return real.getUserPrincipalLookupService();
    }

    @Override
    public WatchService newWatchService() {
      throw new UnsupportedOperationException("nothing here watches files");
    }
  }

  private final class Provider extends FileSystemProvider {
    private final FileSystemProvider of = real.provider();

    @Override
    public String getScheme() {
      return "faulty";
    }

    @Override
    public FileSystem newFileSystem(URI uri, Map<String, ?> env) {
      throw new UnsupportedOperationException(
          "there is one file system, of the paths that it gave out");
    }

    @Override
    public FileSystem getFileSystem(URI uri) {
      return system;
    }

    @Override
    public Path getPath(URI uri) {
      throw new UnsupportedOperationException("a path comes from its file system");
    }

    @Override
    public FileChannel newFileChannel(
        Path path, Set<? extends OpenOption> options, FileAttribute<?>... attributes)
        throws IOException {
      if (options.contains(StandardOpenOption.WRITE)
          || options.contains(StandardOpenOption.APPEND)) {
        step(path);
      }
      return new FaultyChannel(
          () -> step(path), of.newFileChannel(unwrap(path), options, attributes));
    }

    @Override
    public SeekableByteChannel newByteChannel(
        Path path, Set<? extends OpenOption> options, FileAttribute<?>... attributes)
        throws IOException {
      return newFileChannel(path, options, attributes);
    }

    @Override
    public DirectoryStream<Path> newDirectoryStream(
        Path folder, DirectoryStream.Filter<? super Path> filter) throws IOException {
      List<Path> all = new ArrayList<>();
      try (DirectoryStream<Path> files = of.newDirectoryStream(unwrap(folder), path -> true)) {
        for (Path file : files) {
          if (filter.accept(wrap(file))) {
            all.add(wrap(file));
          }
        }
      }
      return new DirectoryStream<>() {
        @Override
        public java.util.Iterator<Path> iterator() {
          return all.iterator();
        }

        @Override
        public void close() {}
      };
    }

    @Override
    public void createDirectory(Path folder, FileAttribute<?>... attributes) throws IOException {
      if (noFolders || left == 0) { // Java tries that twice
        noFolders = true;
        left = 0;
      }
      step(folder);
      of.createDirectory(unwrap(folder), attributes);
    }

    @Override
    public void delete(Path path) throws IOException {
      of.delete(unwrap(path));
    }

    @Override
    public void copy(Path from, Path to, CopyOption... options) throws IOException {
      step(to);
      of.copy(unwrap(from), unwrap(to), options);
    }

    @Override
    public void move(Path from, Path to, CopyOption... options) throws IOException {
      step(to);
      of.move(unwrap(from), unwrap(to), options);
    }

    @Override
    public boolean isSameFile(Path a, Path b) throws IOException {
      return of.isSameFile(unwrap(a), unwrap(b));
    }

    @Override
    public boolean isHidden(Path path) throws IOException {
      return of.isHidden(unwrap(path));
    }

    @Override
    public FileStore getFileStore(Path path) throws IOException {
      return of.getFileStore(unwrap(path));
    }

    @Override
    public void checkAccess(Path path, AccessMode... modes) throws IOException {
      of.checkAccess(unwrap(path), modes);
    }

    @Override
    public <V extends FileAttributeView> V getFileAttributeView(
        Path path, Class<V> type, LinkOption... options) {
      return of.getFileAttributeView(unwrap(path), type, options);
    }

    @Override
    public <A extends BasicFileAttributes> A readAttributes(
        Path path, Class<A> type, LinkOption... options) throws IOException {
      return of.readAttributes(unwrap(path), type, options);
    }

    @Override
    public Map<String, Object> readAttributes(Path path, String names, LinkOption... options)
        throws IOException {
      return of.readAttributes(unwrap(path), names, options);
    }

    @Override
    public void setAttribute(Path path, String name, Object value, LinkOption... options)
        throws IOException {
      of.setAttribute(unwrap(path), name, value, options);
    }
  }
}
