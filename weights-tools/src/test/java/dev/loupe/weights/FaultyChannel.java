package dev.loupe.weights;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;

/**
 * A channel to a file of {@link FaultyFiles}: whatever changes the file is a step that may fail.
 */
final class FaultyChannel extends FileChannel {
  private final Step step;
  private final FileChannel of;

  /** Counts one more step, or fails. */
  interface Step {
    void take() throws IOException;
  }

  FaultyChannel(Step step, FileChannel of) {
    this.step = step;
    this.of = of;
  }

  @Override
  public int read(ByteBuffer to) throws IOException {
    return of.read(to);
  }

  @Override
  public long read(ByteBuffer[] to, int offset, int length) throws IOException {
    return of.read(to, offset, length);
  }

  @Override
  public int write(ByteBuffer from) throws IOException {
    step.take();
    return of.write(from);
  }

  @Override
  public long write(ByteBuffer[] from, int offset, int length) throws IOException {
    step.take();
    return of.write(from, offset, length);
  }

  @Override
  public long position() throws IOException {
    return of.position();
  }

  @Override
  public FileChannel position(long position) throws IOException {
    of.position(position);
    return this;
  }

  @Override
  public long size() throws IOException {
    return of.size();
  }

  @Override
  public FileChannel truncate(long size) throws IOException {
    step.take();
    of.truncate(size);
    return this;
  }

  @Override
  public void force(boolean metaData) throws IOException {
    step.take();
    of.force(metaData);
  }

  @Override
  public long transferTo(long position, long count, WritableByteChannel to) throws IOException {
    return of.transferTo(position, count, to);
  }

  @Override
  public long transferFrom(ReadableByteChannel from, long position, long count) throws IOException {
    step.take();
    return of.transferFrom(from, position, count);
  }

  @Override
  public int read(ByteBuffer to, long position) throws IOException {
    return of.read(to, position);
  }

  @Override
  public int write(ByteBuffer from, long position) throws IOException {
    step.take();
    return of.write(from, position);
  }

  @Override
  public MappedByteBuffer map(MapMode mode, long position, long size) throws IOException {
    return of.map(mode, position, size);
  }

  @Override
  public FileLock lock(long position, long size, boolean shared) throws IOException {
    return of.lock(position, size, shared);
  }

  @Override
  public FileLock tryLock(long position, long size, boolean shared) throws IOException {
    return of.tryLock(position, size, shared);
  }

  @Override
  protected void implCloseChannel() throws IOException {
    of.close();
  }
}
