/** What the page of the workbench asks for: runs that are kept, and looked at part by part. */
@NullMarked
package dev.loupe.serve.workbench;

import org.jspecify.annotations.NullMarked;
